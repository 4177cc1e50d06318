"""A step of the optimizer of which some buckets are still being reduced.

The first use of a parameter waits for its bucket, and takes the optimizer's step for the bucket's
parameters. Everything that needs all parameters, and the next backward pass, waits for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringcomm._src.torch.gradient_plan import GradientPlan
from ringcomm._src.torch.overlap.parameter import is_watched, lock, release, unwatched, watch
from ringcomm._src.torch.slot import Slot


class StepInFlight:
    """The rest of a step. `take` takes the optimizer's step for parameters with new gradients."""

    def __init__(
        self, plan: GradientPlan, take: Callable[[Sequence[torch.Tensor]], None], ended: Callable[[], None]
    ) -> None:
        """`ended`: called when all parameters are stepped and none is watched any more."""
        self._plan, self._take, self._ended = plan, take, ended
        self._members: dict[int, list[Slot]] = {}
        self._buckets: dict[int, int] = {}  # by id of a parameter
        self._left = set(plan.in_flight)  # buckets
        self._clear: bool | None = None  # zero_grad(set_to_none=...) has been called; None: it has not
        self._pass_id = -1  # backward pass that follows the step; -1: none so far
        self._unused: set[int] = set()  # ids of the parameters that no function used before that pass
        for slot in plan.slots:
            if slot.slice is not None:
                bucket = plan.bucket_of(slot)
                self._members.setdefault(bucket, []).append(slot)
                self._buckets[id(slot.parameter)] = bucket

    def start(self) -> None:
        """Begins to watch the parameters. Waits for those that cannot be watched."""
        slots = [slot for members in self._members.values() for slot in members]
        unwatched = [slot for slot in slots if not watch(slot.parameter, self._use)]
        for slot in unwatched:
            self._complete_bucket(self._buckets[id(slot.parameter)])

    def has(self, parameter: torch.Tensor) -> bool:
        """Returns True if the parameter's gradient is in a bucket of this step."""
        return id(parameter) in self._buckets

    def holds(self, parameter: torch.Tensor) -> bool:
        """Returns True if the parameter's step has not been taken yet."""
        return self._buckets.get(id(parameter)) in self._left

    def _use(self, parameter: torch.Tensor) -> None:
        with lock:
            self._complete_bucket(self._buckets[id(parameter)])

    def complete(self) -> None:
        """Waits for all buckets, takes the rest of the step, and ends."""
        with lock:
            self._complete_buckets()
            self._end()

    def abandon(self) -> None:
        """Drops the rest of the step, after its reductions have ended."""
        with lock:
            if self._left:
                for bucket in self._left:
                    for slot in self._members[bucket]:
                        slot.restart()
                self._left = set()
                self._plan.drop()
            self._end()

    def _end(self) -> None:
        for slots in self._members.values():
            for slot in slots:
                release(slot.parameter)
        self._ended()

    def zero_grad(self, parameters: Sequence[torch.Tensor], set_to_none: bool) -> None:
        """Clears gradients, those in flight after their step."""
        with lock:
            if self._left:
                self._clear = set_to_none
            for parameter in parameters:
                if not self.holds(parameter):
                    with unwatched([parameter]):
                        _clear(parameter, set_to_none)

    def before_backward(self, slot: Slot) -> None:
        """Completes the step, because backward is about to write gradients.

        Raises
        ------
        RuntimeError
            No function of torch has used the parameter since the step, so the forward pass may have
            used its old value.
        """
        pass_id = torch._C._current_graph_task_id() if hasattr(torch._C, "_current_graph_task_id") else 0
        with lock:
            self._complete_buckets()
            if self._pass_id == -1:
                self._pass_id = pass_id
                parameters = [slot.parameter for slots in self._members.values() for slot in slots]
                self._unused = {id(parameter) for parameter in parameters if is_watched(parameter)}
                for parameter in parameters:
                    release(parameter)
            if pass_id == self._pass_id and id(slot.parameter) in self._unused:
                raise RuntimeError(
                    f"backward() computes a gradient of {slot.name}, which no function of torch has used since the "
                    "last step(): the forward pass was either computed before step(), or by code that reads "
                    "parameters without Python (TorchScript, a C++ extension). It may have used old values. Use "
                    "overlap_forward=False"
                )

    def _complete_buckets(self) -> None:
        for bucket in sorted(self._left):
            self._complete_bucket(bucket)

    def _complete_bucket(self, bucket: int) -> None:
        if bucket not in self._left:
            return
        slots = self._members[bucket]
        parameters = [slot.parameter for slot in slots]
        with unwatched(parameters):
            try:
                self._plan.take(bucket)
            except BaseException:
                self.abandon()
                raise
            self._left.discard(bucket)
            for slot in slots:
                slot.restart()
            # Inference mode and autocast of the first use must not change the step.
            with torch.inference_mode(False), torch.autocast("cpu", enabled=False):
                self._take(parameters)
            if self._clear is not None:
                for parameter in parameters:
                    _clear(parameter, self._clear)
        if not self._left:
            self._plan.end()


def _clear(parameter: torch.Tensor, set_to_none: bool) -> None:
    """Does what ``zero_grad`` does for one parameter."""
    gradient: Any = parameter.grad
    if set_to_none:
        parameter.grad = None
    elif gradient is not None:
        gradient.zero_()
