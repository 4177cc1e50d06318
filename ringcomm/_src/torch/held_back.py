"""What encoders have left out of an optimizer's gradients: by parameter, and across plans."""

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
    """Of one plan, and what an earlier plan has left, which is added to the gradients themselves.

    `handed`: by slot, float32 elements in the order of the gradient's memory, measured as the reduced gradient is: so
    it stays right where another plan is of more ranks, or fewer. `pre`, `worth`: of the settings.
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
        """A step: gradients are measured in other units than in the last one, by this factor."""
        self._paying = {}
        if change != 1.0:
            if self._feedback is not None:
                self._feedback.scale(change)
            for residual in self._handed.values():
                residual.mul_(change)

    def apply(self, slot: Slot, had: bool) -> None:
        """Adds what an earlier plan has left."""
        residual = self._handed.get(slot)
        if had and residual is not None and slot not in self._paying:
            assert slot.slice is not None
            view = slot.slice.stored()
            view.add_(residual.as_strided(view.shape, view.stride()).to(view), alpha=1 / (self._pre * self._worth))
            self._paying[slot] = self._handed.pop(slot)

    def undo(self) -> None:
        """The last step's result is dropped: all that it has sent is owed again, but for the gradients."""
        if self._feedback is not None:
            self._feedback.undo_all()
        self._handed |= self._paying
        self._paying = {}

    def undo_items(self, slots: Iterable[Slot]) -> None:
        """What came for these is not used."""
        for slot in slots:
            if self._feedback is not None and slot in self._where:
                self._feedback.undo(*self._where[slot])
            if (residual := self._paying.pop(slot, None)) is not None:
                self._handed[slot] = residual

    def by_slot(self) -> dict[Slot, torch.Tensor]:
        """A copy of all that is owed. Between steps."""
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
        """All that is owed, from the next step on. Between steps."""
        for bucket in {bucket for bucket, _, _ in self._where.values()}:
            if self._feedback is not None and self._feedback.count(bucket):
                residual_array(self._feedback, bucket)[:] = 0
        self._handed, self._paying = dict(residual), {}

    def norms(self) -> list[dict[str, Any]]:
        """Of each bucket whose encoders hold something back."""
        if self._feedback is None:
            return []
        numbers = sorted({bucket for bucket, _, _ in self._where.values()})
        arrays = {number: residual_array(self._feedback, number) for number in numbers if self._feedback.count(number)}
        return [
            {"bucket": number, "elements": len(array), "residual": float(torch.from_numpy(array).norm())}
            for number, array in arrays.items()
        ]


def _keeping(reducer: GradientReducer) -> list[Slot]:
    """Whose formats hold something back: the same on all ranks."""
    wires = {slot: reducer.settings.format_of(slot.name, slot.parameter) for slot in reducer.slots()}
    return [slot for slot, wire in wires.items() if isinstance(wire, WireFormat) and wire.error_feedback]


def collected(reducer: GradientReducer) -> dict[str, torch.Tensor]:
    """The sum over all ranks, by parameter, of gradients without a loss scale. Collective."""
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
