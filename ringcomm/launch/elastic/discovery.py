"""Asks again and again which hosts there are."""

from __future__ import annotations

import queue
import subprocess
import threading
from typing import Any

from ringcomm.launch.hosts import Host, discover

_EVERY = 1.0  # seconds
_LIMIT = 30.0  # seconds that the script may take


class Discovery:
    """Puts ("hosts", [Host, ...]) into `events` whenever a script's answer changes, and ("discovery_failed", why)."""

    def __init__(self, script: str, slots: int | None, events: queue.SimpleQueue[tuple[Any, ...]]) -> None:
        self._script, self._slots, self._events = script, slots, events
        self._stop = threading.Event()
        self._last: list[Host] = []

    def first(self) -> list[Host]:
        """The first answer, waited for. Raises ValueError if there is none."""
        self._last = discover(self._script, self._slots, _LIMIT)
        threading.Thread(target=self._ask, daemon=True).start()
        return self._last

    def _ask(self) -> None:
        failed = False
        while not self._stop.wait(_EVERY):
            try:
                hosts = discover(self._script, self._slots, _LIMIT, may_be_none=True)
            except (ValueError, OSError, subprocess.SubprocessError) as error:
                if not failed:
                    self._events.put(("discovery_failed", str(error)))
                failed = True
                continue
            failed = False
            if hosts != self._last:
                self._last = hosts
                self._events.put(("hosts", hosts))

    def stop(self) -> None:
        self._stop.set()
