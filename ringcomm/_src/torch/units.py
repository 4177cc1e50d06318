"""Units of gradients: a loss scale multiplies gradients, and residuals must follow its changes."""

from __future__ import annotations

from collections.abc import Callable


class Units:
    """Tracks the loss scale of gradients, which a GradScaler changes during training."""

    def __init__(self) -> None:
        self._now: Callable[[], float] | None = None
        self._last: float | None = None

    def follow(self, now: Callable[[], float]) -> None:
        """Sets the function that returns the factor of the next gradients."""
        self._now = now

    def change(self) -> float:
        """Returns the factor by which the units have changed since the last call."""
        if self._now is None:
            return 1.0
        now = self._now()
        last, self._last = self._last, now
        return 1.0 if last is None or last == 0 else now / last

    def of_last_step(self) -> float:
        return self._last or 1.0

    def restart(self) -> None:
        """Records that the stored residuals have a loss scale of one."""
        self._last = 1.0
