"""What is done to a gradient before it travels, and with what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.base.wire_formats import TopK
from ringcomm._src.torch.slot import Slot


class GradientTransform:
    """One such thing. What lies in ``slot.slice.view`` travels, and comes back as the reduced gradient."""

    def begin(self, change: float) -> None:
        """A step: gradients are measured in other units than in the last one, by this factor."""

    def apply(self, slot: Slot, had: bool) -> None:
        """Its gradient is about to travel, zeros if this rank `had` none."""

    def delivered(self, slot: Slot) -> None:
        """The reduced one has come."""

    def undo(self) -> None:
        """The last step's result is dropped."""

    def undo_items(self, slots: Iterable[Slot]) -> None:
        """What came for these is not used."""


class MomentumCorrection(GradientTransform):
    """Momentum before sparsification, which else would act on gradients that have waited, as if they were new: a rank
    sends, and holds back, velocities u = m u + g. Where the sum had an element, its velocity begins anew.

    Source: Lin et al., "Deep gradient compression", arXiv:1712.01887, sections 3.1 to 3.3.
    """

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._steps = 0
        self._before: dict[Slot, torch.Tensor] = {}
        self._after: dict[Slot, torch.Tensor] = {}  # of the last step, which may be undone

    def _format(self, slot: Slot) -> TopK | None:
        wire = self._settings.format_of(slot.name, slot.parameter)
        return wire if isinstance(wire, TopK) and (wire.momentum or wire.clip) else None

    def begin(self, change: float) -> None:
        self._before |= self._after
        self._after = {}
        self._steps += 1
        if change != 1.0:
            for velocity in self._before.values():
                velocity.mul_(change)

    def apply(self, slot: Slot, had: bool) -> None:
        wire = self._format(slot)
        if wire is None:
            return
        assert slot.slice is not None
        view = slot.slice.stored()
        if wire.clip:
            longest = wire.clip / self._settings.process_set.size() ** 0.5
            view.mul_((longest / view.norm().clamp_min(1e-30)).clamp_max(1.0))
        if wire.momentum:
            if slot in self._before:
                view.add_(self._before[slot], alpha=wire.momentum)
            self._after[slot] = view.clone()

    def delivered(self, slot: Slot) -> None:
        wire = self._format(slot)
        if wire is not None and wire.momentum and self._steps > wire.warmup_steps:
            assert slot.slice is not None
            self._after[slot].masked_fill_(slot.slice.view != 0, 0.0)

    def undo(self) -> None:
        self._after = {}

    def undo_items(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._after.pop(slot, None)
