"""Gradients that are used one step late, and sent while backward computes the next ones.

`delayed_optimizer` implements ``DistributedOptimizer(delay=1)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ringcomm._src.base.ops import Average, Sum
from ringcomm._src.decentralized.method import Method
from ringcomm._src.decentralized.periodic import wire_of
from ringcomm._src.decentralized.replicas import Flat
from ringcomm._src.decentralized.rounds import Lane, Outcome, serve
from ringcomm._src.torch.compression import parts_of
from ringcomm._src.torch.relaxed.gradients import GradientsOptimizer
from ringcomm._src.torch.relaxed.optimizer import relaxed
from ringcomm._src.torch.relaxed.replica import GradientReplica


class DelayedGradients(Method):
    """Sends gradients, and uses those of the last step: x_{t+1} = x_t - lr (mean of g_{t-1}).

    Source: Li et al., "Pipe-SGD", arXiv:1811.03619.
    """

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], op: Any, process_set: Any, wire: Any) -> None:
        self._replica, self._op = GradientReplica(parameters), op
        self._lane = Lane(
            name,
            process_set,
            self._replica.sizes,
            self._replica.dtype,
            self._replica.read,
            self._on_outcome,
            [(wire, None)] * 2,
        )
        self._pending: Flat | None = None  # gradients that are received but not used yet
        self._keep_pending = False
        self.exchanges = 0
        super().__init__(name, process_set)
        # Takes a step of the optimizer. Set in _finish(), for results that arrive after this rank's
        # final step.
        self.take: Callable[[], Any] = lambda: None

    def exchange(self, counted: bool) -> bool:
        """Replaces the gradients by the last step's result. Returns False if there is no result.

        `counted`: this rank's gradients are part of the mean.
        """
        self.steps = self._lane.steps = self.steps + 1
        self._lane.begin(counted=counted)
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._replica.write(0, pending)
            return True
        if self._lane.in_flight < 2:
            return False
        return self._lane.complete().counted > 0

    def _on_outcome(self, fragment: int, outcome: Outcome) -> None:
        self.exchanges += 1
        if self._op == Sum:
            outcome.mean[: self._replica.heads[0]] *= outcome.counted
        if self._keep_pending:
            self._pending = outcome.mean.copy()
        else:
            self._replica.write(fragment, outcome.mean)
            self.take()

    def stepped(self) -> None: ...

    def _finish(self, take: Callable[[], Any] = lambda: None) -> None:
        self.take = take
        if self._pending is not None:
            self._replica.write(0, self._pending)
            take()
        while self._lane.in_flight:
            self._lane.complete()
        self._lane.finish(0)
        serve([self._lane])
        self._lane.close()

    @property
    def updates(self) -> int:
        return self._lane.updates

    def stats(self) -> dict[str, Any]:
        return self._stats(self.exchanges, self._lane.waited, self._lane.bytes, distance=0.0)

    def state(self) -> dict[str, Any]:
        """Waits for the gradients in flight, which are part of the state."""
        self._keep_pending = True
        try:
            while self._lane.in_flight:
                self._lane.complete()
        finally:
            self._keep_pending = False
        return {"steps": self.steps, "pending": None if self._pending is None else self._pending.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.steps = self._lane.steps = state["steps"]
        self._pending = None if state["pending"] is None else state["pending"].copy()


def delayed_optimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    compression: Any,
    op: Any,
    process_set: Any,
    delay: int,
    refused: Mapping[str, Any],
) -> Any:
    """Returns the optimizer of ``delay=1``. `refused`: arguments that must be None."""
    if delay != 1:
        raise ValueError(f"delay={delay} is not supported: use 0, or 1 to apply gradients one step late")
    if op not in (Average, Sum):
        raise ValueError(f"delay=1 supports op=Average and op=Sum, not {getattr(op, 'name', op)}")
    for key, value in refused.items():
        if value is not None:
            raise ValueError(f"delay=1 cannot be combined with {key}={value!r}")
    wire: Any = parts_of(compression).wire
    wire = wire_of(str(wire).removeprefix("torch.") if isinstance(wire, torch.dtype) else wire, narrow_only=True)
    made, name, parameters = relaxed(
        optimizer, "LateOptimizer", named_parameters, process_set, GradientsOptimizer, op=op, wire=wire, delay=delay
    )
    made._method = DelayedGradients(name, parameters, op, process_set, wire)
    return made
