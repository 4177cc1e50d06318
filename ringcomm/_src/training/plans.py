"""Plans of training steps, whatever the framework: which gradients travel together, and one step's reduction.

A framework's binding keeps what is its own: hooks that say when a gradient is there, and memory in which the gradients
of a bucket lie one behind the other.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ringcomm._src.core import _core
from ringcomm._src.named.process_sets import ProcessSet

logger = logging.getLogger("ringcomm")
PlanId = tuple[int, int]  # number of the optimizer, and how many plans it has had

_abandoned: dict[tuple[ProcessSet, PlanId], StepPlan] = {}
_kept: list[Any] = []  # memory that the core may be at work on


# ---- the end of a step -----------------------------------------------------------------------------------------------
class Flags(NamedTuple):
    """What a rank says at the end of a step; after it, how many ranks said so."""

    kept: int = 0  # the gradients: the step is taken
    dropped: int = 0  # or not
    wants_new_plan: int = 0
    changed: int = 0  # gradients that were on their way
    split: int = 0  # more came to gradients that were on their way
    compares: int = 0  # replicas are to be compared in this step
    late: int = 0  # the script does what is right only if gradients are sent at the end of a step


KEPT, DROPPED = Flags(kept=1), Flags(dropped=1)


class Outcome(NamedTuple):
    """How many ranks had what, by item of the plan."""

    present: list[int]  # a gradient
    sparse: list[int]  # a sparse one
    flags: Flags


class Presence:
    """What this rank has, by item of the plan."""

    def __init__(self, count: int) -> None:
        self.here, self.sparse = bytearray(count), bytearray(count)

    def with_flags(self, flags: Flags) -> bytes:
        return b"".join((self.here, self.sparse, bytes(flags)))


# ---- plans -----------------------------------------------------------------------------------------------------------
def abandoned_plans(process_set: ProcessSet) -> list[PlanId]:
    """Plans whose optimizers this rank has dropped.

    Each rank's garbage is collected when it likes, but plans must be closed at the same place of the program. So they
    are closed when the next plan is made and every rank turns out to have dropped them.
    """
    for key in [key for key, plan in _abandoned.items() if not plan.usable()]:
        del _abandoned[key]
    return sorted(plan_id for owner, plan_id in _abandoned if owner is process_set)


class BucketWire(NamedTuple):
    """What a bucket travels as: codes of ops.wire_code."""

    wire: int = 0
    feedback: bool = False  # what is left out of it is owed
    first: int = 0  # in so many steps of the plan:
    first_steps: int = 0

    def compresses(self) -> bool:
        """By more than rounding."""
        return not (_core.wire_rounds(self.wire) and _core.wire_rounds(self.first))


class LowRank(NamedTuple):
    """Matrices of a bucket, all of it but for gaps, which travel as two factors once its first steps are over."""

    rank: int = 0  # 0: none do
    warm_start: bool = True
    matrices: Sequence[tuple[int, int, int]] = ()  # first element of the bucket, rows, columns


class BucketShape(NamedTuple):
    """A bucket as the core's plans take it. Where its stretches lie, StepPlan.place says."""

    dtype: int  # index into _core.DTYPES
    stretches: list[int]  # elements of each; one after the other they are the bucket
    wire: BucketWire = BucketWire()
    gaps: Sequence[tuple[int, int]] = ()  # first element and number of those that are no gradient's: zeros
    low_rank: LowRank = LowRank()
    on_device: bool = False  # on every rank; Plan.ready_at says on which, and behind what


class StepPlan:
    """A plan of the core, with its stream of shared memory, in one session."""

    _next_collection = 0.0  # time.monotonic(), in seconds

    def __init__(
        self,
        process_set: ProcessSet,
        plan_id: PlanId,
        name: str,
        buckets: Sequence[BucketShape],
        items: int,
        op: int,
        scales: tuple[float, float],
        algorithm: str | None = None,
    ) -> None:
        """`items`: gradients, in buckets or not, whose presence ranks count. `algorithm`: of every bucket; None: as the
        options say."""
        self._set, self._id, self._session, self._items = process_set, plan_id, process_set.session(), items
        node, self._slot = process_set.take_slot()
        self._plan: _core.Plan = self._session.engine.make_plan(
            *(process_set.set_id(), name, buckets, int(op), *scales),
            *(2 * items + len(Flags._fields), node, self._slot),
            algorithm=process_set.algorithm("allreduce", algorithm) if algorithm else "",
        )
        self.begin = self._plan.begin
        self.ready = self._plan.ready
        self.ready_at = self._plan.ready_at  # bucket, order: of one on a device
        self.takes_stretches = self._plan.takes_stretches  # of a bucket: whether they may lie anywhere
        self.feedback = self._plan.feedback  # what its encoders hold back, between steps
        self.place = self._plan.place  # bucket, stretch, address: before it is ready

    @staticmethod
    def fits(process_set: ProcessSet) -> bool:
        """Returns whether the process set may have one more plan: message tags limit their number.

        If not, dropped optimizers in reference cycles are collected: the next agreement may close their plans.
        """
        fits = process_set.session().engine.has_room_for_plan(process_set.set_id())
        if not fits and time.monotonic() > StepPlan._next_collection:
            gc.collect()
            StepPlan._next_collection = time.monotonic() + 10  # a collection takes 0.1 s and more
        return fits

    def usable(self) -> bool:
        """Not once ``shutdown()`` has been called, also after another ``init()``."""
        return self._set._session is self._session

    def finish(self, present: Presence, flags: Flags) -> Outcome:
        """Sends what is left of the step and waits for all of it."""
        operation = self._plan.finish(present.with_flags(flags))
        operation.wait()
        operation.check()
        counts, items = operation.counts, self._items
        return Outcome(counts[:items], counts[items : 2 * items], Flags(*counts[2 * items :]))

    def close(self) -> None:
        """All ranks close their plans at the same place of their program."""
        self._plan.close()
        self._set.give_slot(self._slot)

    @staticmethod
    def keep(memory: Any) -> None:
        """For good: of a step that did not end well."""
        _kept.append(memory)

    def abandon(self, keep: Any) -> None:
        """Nobody uses it any more. `keep`: memory of a step that is under way, or None."""
        if keep is not None:
            self.keep(keep)
        elif self.usable():
            _abandoned[self._set, self._id] = self

    @staticmethod
    def close_abandoned(process_set: ProcessSet, plan_id: PlanId) -> None:
        """Closes an abandoned plan: all ranks have abandoned it. (Two threads may have agreed on that.)"""
        if (plan := _abandoned.pop((process_set, plan_id), None)) is not None:
            plan.close()
