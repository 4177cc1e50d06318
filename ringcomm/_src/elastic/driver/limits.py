"""How long, how often and at least what: when a job of generations gives up."""

from __future__ import annotations

import time
from dataclasses import dataclass

_FRUITLESS = 3  # generations in a row that fail without a new commit
_FAILING = 5  # that fail in a row, commits or not: the program may do so for ever
_BACK_OFF, _MOST_BACK_OFF = 0.5, 30.0  # seconds before the second of such, doubled for each; at most


@dataclass
class Limits:
    """Set by the user, and counted."""

    start: int  # ranks that the first generation waits for
    timeout: float  # seconds in which there must be enough slots
    tick: float = 0.1  # seconds between two looks at agents, at most
    resets: int | None = None  # at most
    leave: float = 30.0  # seconds that ranks have to commit when the job is interrupted
    copies: int | None = None  # hosts that keep commits
    snapshots: str | None = None  # a folder
    snapshot_seconds: float = 0.0
    restarts_only: bool = False  # the program is started again as often as `resets` says, commit or not
    sealed: int = -1  # the newest commit
    progress: bool = False  # the last generation has made one
    not_before: float = 0.0  # of the clock: the next generation
    _before: int = -1
    _reset: int = 0
    _fruitless: int = 0
    _failed: int = 0

    def doubts(self) -> str:
        """What the user should know of generations that fail again and again though each makes a commit."""
        if self.resets is not None or self._failed == 0 or self._failed % _FAILING:
            return ""
        return (
            f"{self._failed} generations in a row have failed, each after new commits; they are started again as long "
            "as commits come: --reset-limit N ends that"
        )

    def committed(self, number: int) -> None:
        self.sealed = max(self.sealed, number)

    def after_generation(self, by_fault: bool, plain: bool) -> str:
        """Why there is to be no other; empty if there is. `plain`: the program knows nothing of elastic training."""
        self.progress, self._before = self.sealed > self._before, self.sealed
        self._reset += 1
        self._failed = self._failed + 1 if by_fault else 0
        self._fruitless = 0 if self.progress or not by_fault else self._fruitless + 1
        self.not_before = time.monotonic()
        if self._fruitless > 1:
            self.not_before += min(_BACK_OFF * 2 ** (self._fruitless - 2), _MOST_BACK_OFF)
        if self.resets is not None and self._reset > self.resets:
            return f"its ranks may be started again {self.resets} times at most (--reset-limit, --restarts)"
        if self._fruitless >= _FRUITLESS and not self.restarts_only:
            return f"that is the {_FRUITLESS}rd time in a row without a new commit" + (
                ": the program makes none, see docs/elastic.md" if plain else ""
            )
        return ""
