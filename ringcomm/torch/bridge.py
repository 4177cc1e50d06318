"""Plans of training steps, from the engine of the session that ``init()`` made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringcomm import _core
from ringcomm.process_sets import ProcessSet, global_process_set
from ringcomm.torch.buckets import Limits
from ringcomm.torch.tensors import DTYPES

PlanId = tuple[int, int]  # number of the optimizer, and how many plans it has had

_abandoned: dict[tuple[ProcessSet, PlanId], StepPlan] = {}
_kept: list[Any] = []  # memory that the core may be at work on


def bucket_limits() -> Limits:
    """Buckets are smaller than what the engine fuses at most: to travel while backward runs, one must be full early."""
    fusion = global_process_set.session().config.fusion_bytes
    return Limits(bytes=min(Limits.bytes, fusion)) if fusion else Limits(first_bytes=1, bytes=1)


def dead_plans(process_set: ProcessSet) -> list[PlanId]:
    """Plans whose optimizers this rank has dropped.

    Each rank's garbage is collected when it likes, but plans must be closed at the same place of the program. So they
    are closed when the next plan is made and every rank turns out to have dropped them.
    """
    for key in [key for key, plan in _abandoned.items() if not plan.usable()]:
        del _abandoned[key]
    return sorted(plan_id for owner, plan_id in _abandoned if owner is process_set)


class StepPlan:
    """A plan of the core, with its stream of shared memory, in one session."""

    def __init__(
        self,
        process_set: ProcessSet,
        plan_id: PlanId,
        name: str,
        buckets: Sequence[tuple[int, int, int]],
        op: int,
        scales: tuple[float, float],
        wire: torch.dtype | None,
        items: int,
    ) -> None:
        """`buckets`: (dtype, elements, address) each. `items`: flags that ranks count at the end of a step."""
        self._set, self._id, self._session = process_set, plan_id, process_set.session()
        wire_index = -1 if wire is None else DTYPES[wire]
        node, self._slot = process_set.take_slot()
        self._plan: _core.Plan = self._session.engine.make_plan(
            process_set.set_id(), name, buckets, int(op), *scales, wire_index, items, node, self._slot
        )
        self.begin = self._plan.begin
        self.ready = self._plan.ready

    def usable(self) -> bool:
        """Not once ``shutdown()`` has been called, also after another ``init()``."""
        return self._set._session is self._session

    def finish(self, present: bytes) -> list[int]:
        """Sends what is left of the step and waits for all of it. Per item, how many ranks had it."""
        operation = self._plan.finish(present)
        operation.wait()
        operation.check()
        return operation.counts

    def close(self) -> None:
        """All ranks close their plans at the same place of their program."""
        self._plan.close()
        self._set.give_slot(self._slot)

    def abandon(self, keep: Any) -> None:
        """Nobody uses it any more. `keep`: memory of a step that is under way, or None."""
        if keep is not None:
            _kept.append(keep)
        elif self.usable():
            _abandoned[self._set, self._id] = self

    @staticmethod
    def bury(process_set: ProcessSet, plan_id: PlanId) -> None:
        """Closes an abandoned plan: all ranks have abandoned it."""
        _abandoned.pop((process_set, plan_id)).close()
