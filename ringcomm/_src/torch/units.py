"""What gradients are measured in."""

from __future__ import annotations

from collections.abc import Callable


class Units:
    """Of what gradients are measured in: a GradScaler's factor, which changes."""

    def __init__(self) -> None:
        self._now: Callable[[], float] | None = None
        self._last: float | None = None

    def follow(self, now: Callable[[], float]) -> None:
        """`now` tells the factor of the gradients to come."""
        self._now = now

    def change(self) -> float:
        """By what factor they have changed since it was asked last."""
        if self._now is None:
            return 1.0
        now = self._now()
        last, self._last = self._last, now
        return 1.0 if last is None or last == 0 else now / last

    def of_last_step(self) -> float:
        return self._last or 1.0

    def restart(self) -> None:
        """What has been kept is measured in ones."""
        self._last = 1.0
