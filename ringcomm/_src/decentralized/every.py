"""Decides when ranks exchange: after a number of steps, or after a period of time.

The periodic methods, `HostAveraging` and `ElasticPulls` use it.
"""

from __future__ import annotations

import re
import time

NEVER = 1 << 62  # a period in steps, which no run reaches
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0}


class Every:
    """The schedule of a replica's rounds. Each period has ``parts`` rounds, at equal distances.

    Parameters
    ----------
    period : int | str
        Steps, or a time (``"200ms"``, ``"1.5s"`` or ``"2min"``). With a time, a rank enters the
        round at the end of its first step after that time. Ranks need no message to agree on this:
        a slow rank makes fewer steps in a period, and delays other ranks by at most one step.
    parts : int
        Rounds in a period.

    Raises
    ------
    ValueError
        The period is neither steps nor a time, or there are fewer steps than parts.
    """

    def __init__(self, period: int | str, parts: int = 1) -> None:
        self.period, self.parts = period, parts
        self.seconds: float | None = None
        if isinstance(period, str):
            found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min)", period.strip())
            if found is None or float(found[1]) == 0:
                raise ValueError(
                    f'every={period!r}: must be a number of steps, or a time, for example "200ms", "1.5s" or "2min"'
                )
            self.seconds = float(found[1]) * _UNITS[found[2]] / parts
        elif isinstance(period, bool) or not isinstance(period, int) or period < 1:
            raise ValueError(f'every={period!r}: must be a positive number of steps, or a time, for example "200ms"')
        elif period < parts:
            raise ValueError(f"every={period}: {parts} fragments need at least {parts} steps")
        self.begun = 0  # rounds begun
        self._last = time.monotonic()

    def due(self, steps: int) -> bool:
        """Returns True if a round is due after ``steps`` steps since counting began."""
        if self.seconds is not None:
            return time.monotonic() - self._last >= self.seconds
        assert isinstance(self.period, int)
        return steps >= (self.begun + 1) * self.period // self.parts

    def count(self) -> None:
        """Counts a round that has begun, and restarts the clock."""
        self.begun += 1
        self.restart()

    def restart(self) -> None:
        self._last = time.monotonic()
