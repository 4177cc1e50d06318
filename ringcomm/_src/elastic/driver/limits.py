"""Limits of an elastic job: time, number of restarts, and progress. They decide when the job fails.

The driver asks `Limits` after each generation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_FRUITLESS = 3  # number of consecutive failed generations without a new commit after which the job fails
_MANY_FAILED = 5  # number of consecutive failed generations, with or without commits, after which to warn
_BACK_OFF, _MOST_BACK_OFF = 0.5, 30.0  # seconds before the second fruitless restart, doubled for later ones; maximum


@dataclass
class Limits:
    """The user's limits, and the counters that are compared with them."""

    start: int  # number of ranks that the first generation waits for
    timeout: float  # seconds until enough slots must be available
    tick: float = 0.1  # maximum seconds between two checks of agents
    resets: int | None = None  # maximum number of restarts
    leave: float = 30.0  # seconds in which ranks may commit when the job is interrupted
    copies: int | None = None  # number of hosts that store commits; None: all
    snapshots: str | None = None  # folder for snapshots; None: no snapshots
    snapshot_seconds: float = 0.0
    restarts_only: bool = False  # restart up to `resets` times, with or without commits
    sealed: int = -1  # the newest commit
    progress: bool = False  # the last generation has made a new commit
    not_before: float = 0.0  # earliest start of the next generation, as time.monotonic()
    _before: int = -1
    _reset: int = 0
    _fruitless: int = 0
    _failed: int = 0

    def warning(self) -> str:
        """Returns a warning if many generations fail although each makes a commit; else ""."""
        if self.resets is not None or self._failed == 0 or self._failed % _MANY_FAILED:
            return ""
        return (
            f"{self._failed} generations in a row have failed, each after new commits. The next one starts as long as "
            "there are new commits; --reset-limit N limits the number of restarts"
        )

    def committed(self, number: int) -> None:
        self.sealed = max(self.sealed, number)

    def after_generation(self, by_fault: bool, without_elastic: bool) -> str:
        """Returns the reason to end the job, or "" if another generation may start.

        `without_elastic`: the program does not use elastic training.
        """
        self.progress, self._before = self.sealed > self._before, self.sealed
        self._reset += 1
        self._failed = self._failed + 1 if by_fault else 0
        self._fruitless = 0 if self.progress or not by_fault else self._fruitless + 1
        self.not_before = time.monotonic()
        if self._fruitless > 1:
            self.not_before += min(_BACK_OFF * 2 ** (self._fruitless - 2), _MOST_BACK_OFF)
        if self.resets is not None and self._reset > self.resets:
            return f"the maximum number of restarts is {self.resets} (--reset-limit, --restarts)"
        if self._fruitless >= _FRUITLESS and not self.restarts_only:
            return f"{_FRUITLESS} generations in a row have failed without a new commit" + (
                ": the program has not called elastic.run, see docs/elastic.md" if without_elastic else ""
            )
        return ""
