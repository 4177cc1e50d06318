"""When ranks exchange: after so many steps, or after so much time."""

from __future__ import annotations

import re
import time

NEVER = 1 << 62  # steps
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0}


class Every:
    """Says when the next of a replica's rounds is due. Of ``parts`` rounds, one falls in each part of the period.

    Args:
        period: steps, or a text such as ``"200ms"``, ``"1.5s"``, ``"2min"``: then a rank comes at the end of its first
            step after that time. No message is needed for it: the slowest rank makes few steps, and holds nobody up
            for longer than one.
        parts: rounds in a period.

    Raises:
        ValueError: neither; or fewer steps than parts.
    """

    def __init__(self, period: int | str, parts: int = 1) -> None:
        self.period, self.parts = period, parts
        self.seconds: float | None = None
        if isinstance(period, str):
            found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min)", period.strip())
            if found is None or float(found[1]) == 0:
                raise ValueError(f'every={period!r}: a number of steps, or a time such as "200ms", "1.5s" or "2min"')
            self.seconds = float(found[1]) * _UNITS[found[2]] / parts
        elif isinstance(period, bool) or not isinstance(period, int) or period < 1:
            raise ValueError(f'every={period!r}: a positive number of steps, or a time such as "200ms"')
        elif period < parts:
            raise ValueError(f"every={period}: {parts} fragments need at least {parts} steps")
        self.begun = 0  # rounds
        self._last = time.monotonic()

    def due(self, steps: int) -> bool:
        """Whether a round is to begin, ``steps`` having been made since counting began."""
        if self.seconds is not None:
            return time.monotonic() - self._last >= self.seconds
        assert isinstance(self.period, int)
        return steps >= (self.begun + 1) * self.period // self.parts

    def count(self) -> None:
        """A round has begun, or has just been waited for: what was waited for is not time for steps."""
        self.begun += 1
        self.restart()

    def restart(self) -> None:
        self._last = time.monotonic()
