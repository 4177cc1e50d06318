"""Error feedback of an optimizer: the residuals of its gradients, by parameter, across plans.

Encoders of the core store residuals per bucket of a plan. `HeldBack` maps them to parameters, so
that a new plan, or a state that is saved and loaded, continues with them.
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
from ringcomm._src.torch.slot import Slot
from ringcomm._src.torch.travel import GradientTransform

if TYPE_CHECKING:
    from ringcomm._src.torch.reducer import GradientReducer


class HeldBack(GradientTransform):
    """The residuals of one plan's encoders, and those of an earlier plan, which are added to the gradients.

    `handed`: residuals of the earlier plan by slot: float32 elements in the gradient's memory
    order, in units of the reduced gradient. So they stay correct if the new plan has more or fewer
    ranks. `pre`, `worth`: factors of the settings.
    """

    def __init__(
        self,
        feedback: _core.Feedback | None,
        slots: Sequence[Slot],
        buckets: Sequence[Bucket],
        handed: dict[Slot, torch.Tensor],
        pre: float,
        worth: float,
    ) -> None:
        self._feedback, self._handed, self._pre, self._worth = feedback, dict(handed), pre, worth
        self._where = {
            slots[item]: (number, bucket.first_of(position), slots[item].parameter.numel())
            for number, bucket in enumerate(buckets)
            for position, item in enumerate(bucket.items)
        }
        self._paying: dict[Slot, torch.Tensor] = {}

    def begin(self, change: float) -> None:
        """Begins a step. `change`: factor from the gradients' units in the last step to those in this step."""
        self._paying = {}
        if change != 1.0:
            if self._feedback is not None:
                self._feedback.scale(change)
            for residual in self._handed.values():
                residual.mul_(change)

    def apply(self, slot: Slot, had: bool) -> None:
        """Adds the residual of an earlier plan to the gradient."""
        residual = self._handed.get(slot)
        if had and residual is not None and slot not in self._paying:
            assert slot.slice is not None
            view = slot.slice.stored()
            view.add_(residual.as_strided(view.shape, view.stride()).to(view), alpha=1 / (self._pre * self._worth))
            self._paying[slot] = self._handed.pop(slot)

    def undo(self) -> None:
        """Restores the residuals from before the last step, because its result is dropped."""
        if self._feedback is not None:
            self._feedback.undo_all()
        self._handed |= self._paying
        self._paying = {}

    def undo_items(self, slots: Iterable[Slot]) -> None:
        """Restores the residuals of these slots, because their results are not used."""
        for slot in slots:
            if self._feedback is not None and slot in self._where:
                self._feedback.undo(*self._where[slot])
            if (residual := self._paying.pop(slot, None)) is not None:
                self._handed[slot] = residual

    def by_slot(self) -> dict[Slot, torch.Tensor]:
        """Returns a copy of all residuals. Call it between steps."""
        residual = {slot: tensor.clone() for slot, tensor in self._handed.items()}
        if self._feedback is None:
            return residual
        for slot, (bucket, first, count) in self._where.items():
            if self._feedback.count(bucket) == 0:
                continue
            mine = torch.from_numpy(residual_array(self._feedback, bucket)[first : first + count]) * self._worth
            residual[slot] = residual[slot] + mine if slot in residual else mine
        return residual

    def replace(self, residual: dict[Slot, torch.Tensor]) -> None:
        """Replaces all residuals from the next step on. Call it between steps."""
        for bucket in {bucket for bucket, _, _ in self._where.values()}:
            if self._feedback is not None and self._feedback.count(bucket):
                residual_array(self._feedback, bucket)[:] = 0
        self._handed, self._paying = dict(residual), {}

    def norms(self) -> list[dict[str, Any]]:
        """Returns the number, size and norm of the residual of each bucket with error feedback."""
        if self._feedback is None:
            return []
        numbers = sorted({bucket for bucket, _, _ in self._where.values()})
        arrays = {number: residual_array(self._feedback, number) for number in numbers if self._feedback.count(number)}
        return [
            {"bucket": number, "elements": len(array), "residual": float(torch.from_numpy(array).norm())}
            for number, array in arrays.items()
        ]


def _keeping(reducer: GradientReducer) -> list[Slot]:
    """Returns the slots with formats that use error feedback; equal on all ranks."""
    wires = {slot: reducer.settings.format_of(slot.name, slot.parameter) for slot in reducer.slots()}
    return [slot for slot, wire in wires.items() if isinstance(wire, WireFormat) and wire.error_feedback]


def collected(reducer: GradientReducer) -> dict[str, torch.Tensor]:
    """Returns the sums of the residuals over all ranks, by parameter name, without a loss scale. Collective."""
    mine, settings = reducer.held_back(), reducer.settings
    handles = {}
    for slot in _keeping(reducer):
        residual = mine.get(slot, torch.zeros(slot.parameter.numel())) / settings.units.of_last_step()
        handles[slot.name] = operations.allreduce_async(
            residual, name=f"{settings.name}.residual.{slot.name}", op=Sum, process_set=settings.process_set
        )
    return {name: handle.wait() for name, handle in handles.items()}


def restore(reducer: GradientReducer, state: Mapping[str, torch.Tensor]) -> None:
    slots = {slot.name: slot for slot in _keeping(reducer)}
    for name, residual in state.items():
        if name not in slots or residual.numel() != slots[name].parameter.numel():
            raise ValueError(f"compression state of '{name}': no compressed parameter of {residual.numel()} elements")
    first = reducer.settings.process_set.rank() == 0
    reducer.settings.units.restart()
    reducer.restore(
        {slots[name]: residual.clone().float().flatten().cpu() for name, residual in state.items()} if first else {}
    )
