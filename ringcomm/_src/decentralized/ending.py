"""Ends a method: by finish(), or with a warning if ringcomm ends first.

Every `Method` holds an `Ending`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from ringcomm._src.named.process_sets import ProcessSet

logger = logging.getLogger("ringcomm")


class Ending:
    """The end of one method.

    ``leave`` is called if ringcomm ends before the method has finished, so that no rank waits for
    this one.
    """

    def __init__(self, name: str, process_set: ProcessSet, leave: Callable[[], None] = lambda: None) -> None:
        self._name, self._set, self._leave = name, process_set, leave
        self.finished = False
        process_set.session().at_end.append(self._warn)

    def finish(self) -> None:
        """Records that the method has finished, and cancels the warning."""
        self.finished = True
        with suppress(ValueError):  # ringcomm has been shut down
            self._set.session().at_end.remove(self._warn)

    def _warn(self) -> None:
        self.finished = True
        self._leave()
        logger.warning(
            "%s was not finished before ringcomm ended: other ranks may lack this rank's changes since its last "
            "exchange. Call finish(), or use it in a with statement",
            self._name,
        )
