"""Error feedback of an optimizer: the residuals of its gradients, by parameter, across plans.

Encoders of the core store residuals per bucket of a plan. `PlanResiduals` maps them to parameters,
so that a new plan, or a state that is saved and loaded, continues with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ringcomm._src.base.ops import Sum
from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.compression.compression import residual_array
from ringcomm._src.core import _core
from ringcomm._src.torch.asynchronous import operations
from ringcomm._src.torch.buckets import Bucket
from ringcomm._src.torch.gradient_transforms import GradientTransform
from ringcomm._src.torch.slot import Slot

if TYPE_CHECKING:
    from ringcomm._src.torch.reducer import GradientReducer


class PlanResiduals(GradientTransform):
    """The residuals of a plan's encoders, and those of an earlier plan, added to gradients.

    `inherited`: the earlier plan's residuals by slot, as float32 elements in the gradient's memory
    order. Their units are those of the reduced gradient, so that they stay correct if the number of
    ranks changes. `prescale`, `scale`: ``scales()[0]`` and ``residual_scale()`` of the settings.
    """

    def __init__(
        self,
        feedback: _core.Feedback | None,
        slots: Sequence[Slot],
        buckets: Sequence[Bucket],
        inherited: dict[Slot, torch.Tensor],
        prescale: float,
        scale: float,
    ) -> None:
        self._feedback, self._inherited, self._prescale, self._scale = feedback, dict(inherited), prescale, scale
        self._locations = {
            slots[item]: (number, bucket.first_of(position), slots[item].parameter.numel())
            for number, bucket in enumerate(buckets)
            for position, item in enumerate(bucket.items)
        }
        self._applied: dict[Slot, torch.Tensor] = {}

    def begin(self, change: float) -> None:
        """Begins a step. `change`: factor that converts the last step's units to this step's."""
        self._applied = {}
        if change != 1.0:
            if self._feedback is not None:
                self._feedback.scale(change)
            for residual in self._inherited.values():
                residual.mul_(change)

    def acts(self) -> bool:
        return bool(self._inherited)

    def apply(self, slot: Slot, has_gradient: bool) -> None:
        """Adds the residual of an earlier plan to the gradient."""
        residual = self._inherited.get(slot)
        if has_gradient and residual is not None and slot not in self._applied:
            assert slot.slice is not None
            view = slot.slice.stored()
            view.add_(residual.as_strided(view.shape, view.stride()).to(view), alpha=1 / (self._prescale * self._scale))
            self._applied[slot] = self._inherited.pop(slot)

    def undo(self) -> None:
        """Restores the residuals from before the last step, because its result is dropped."""
        if self._feedback is not None:
            self._feedback.undo_all()
        self._inherited |= self._applied
        self._applied = {}

    def undo_items(self, slots: Iterable[Slot]) -> None:
        """Restores the residuals of these slots, because their results are not used."""
        for slot in slots:
            if self._feedback is not None and slot in self._locations:
                self._feedback.undo(*self._locations[slot])
            if (residual := self._applied.pop(slot, None)) is not None:
                self._inherited[slot] = residual

    def by_slot(self) -> dict[Slot, torch.Tensor]:
        """Returns a copy of all residuals. Call it between steps."""
        residual = {slot: tensor.clone() for slot, tensor in self._inherited.items()}
        if self._feedback is None:
            return residual
        for slot, (bucket, first, count) in self._locations.items():
            if self._feedback.count(bucket) == 0:
                continue
            own = torch.from_numpy(residual_array(self._feedback, bucket)[first : first + count]) * self._scale
            residual[slot] = residual[slot] + own if slot in residual else own
        return residual

    def replace(self, residual: dict[Slot, torch.Tensor]) -> None:
        """Replaces all residuals from the next step on. Call it between steps."""
        for bucket in {bucket for bucket, _, _ in self._locations.values()}:
            if self._feedback is not None and self._feedback.count(bucket):
                residual_array(self._feedback, bucket)[:] = 0
        self._inherited, self._applied = dict(residual), {}

    def norms(self) -> list[dict[str, Any]]:
        """Returns the number, size and norm of the residual of each bucket with error feedback."""
        if self._feedback is None:
            return []
        numbers = sorted({bucket for bucket, _, _ in self._locations.values()})
        arrays = {number: residual_array(self._feedback, number) for number in numbers if self._feedback.count(number)}
        return [
            {"bucket": number, "elements": len(array), "residual": float(torch.from_numpy(array).norm())}
            for number, array in arrays.items()
        ]


def _slots_with_feedback(reducer: GradientReducer) -> list[Slot]:
    """Returns the slots with formats that use error feedback. The result is equal on all ranks."""
    wires = {slot: reducer.settings.format_of(slot.name, slot.parameter) for slot in reducer.slots()}
    return [slot for slot, wire in wires.items() if isinstance(wire, WireFormat) and wire.error_feedback]


def sum_over_ranks(reducer: GradientReducer) -> dict[str, torch.Tensor]:
    """Returns the ranks' residuals, summed, by parameter name, without loss scale. Collective."""
    own, settings = reducer.residuals(), reducer.settings
    handles = {}
    for slot in _slots_with_feedback(reducer):
        residual = own.get(slot, torch.zeros(slot.parameter.numel())) / settings.units.of_last_step()
        handles[slot.name] = operations.allreduce_async(
            residual, name=f"{settings.name}.residual.{slot.name}", op=Sum, process_set=settings.process_set
        )
    return {name: handle.wait() for name, handle in handles.items()}


def restore(reducer: GradientReducer, state: Mapping[str, torch.Tensor]) -> None:
    slots = {slot.name: slot for slot in _slots_with_feedback(reducer)}
    for name, residual in state.items():
        if name not in slots or residual.numel() != slots[name].parameter.numel():
            raise ValueError(
                f"the compression state has {residual.numel()} elements for '{name}', but no compressed parameter of "
                "this optimizer has this name and size"
            )
    first = reducer.settings.process_set.rank() == 0
    reducer.settings.units.restart()
    reducer.restore(
        {slots[name]: residual.clone().float().flatten().cpu() for name, residual in state.items()} if first else {}
    )
