"""Transformations of gradients before they are reduced, for example momentum correction.

A plan (`gradient_plan`) applies them in order to each gradient in its bucket.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.base.wire_formats import TopK
from ringcomm._src.torch.slot import Slot


class GradientTransform:
    """A transformation of gradients before their reduction. It is undone if a result is unused.

    ``slot.slice.view`` holds the data to send, and later the reduced gradient.
    """

    def begin(self, change: float) -> None:
        """Begins a step. `change`: factor that converts the last step's units to this step's."""

    def acts(self) -> bool:
        """Returns False if it changes no gradient of this step. Called after `begin`."""
        return True

    def apply(self, slot: Slot, has_gradient: bool) -> None:
        """Transforms the data before it is sent. `has_gradient`: False if the data is zeros."""

    def delivered(self, slot: Slot) -> None:
        """Called when ``.grad`` is the reduced gradient."""

    def undo(self) -> None:
        """Undoes the changes of the last step, because its result is dropped."""

    def undo_items(self, slots: Iterable[Slot]) -> None:
        """Undoes the changes of the last step for these slots: their results are not used."""


class MomentumCorrection(GradientTransform):
    """Applies momentum before sparsification (momentum correction).

    The optimizer's momentum would treat elements that are sent late as new ones. So a rank sends
    velocities u = m u + g instead of gradients g, and its residuals are velocities too. The
    velocity of an element restarts at zero after a step in which any rank sent the element.
    Source: Lin et al., "Deep gradient compression", arXiv:1712.01887, sections 3.1 to 3.3.
    """

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._steps = 0
        self._before: dict[Slot, torch.Tensor] = {}
        self._after: dict[Slot, torch.Tensor] = {}  # velocities of the last step, which may be undone

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

    def apply(self, slot: Slot, has_gradient: bool) -> None:
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
