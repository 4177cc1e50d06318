"""Asks again and again which hosts there are."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from typing import Any

from ringcomm._src.launch.hosts import Host, discover

_EVERY = 1.0  # seconds
_LIMIT = 30.0  # seconds that the script may take


class Discovery:
    """Puts ("hosts", [Host, ...]) into `events` whenever a script's answer changes, and ("discovery_failed", why)."""

    def __init__(self, script: str, slots: int | None, events: queue.SimpleQueue[tuple[Any, ...]]) -> None:
        self._script, self._slots, self._events = script, slots, events
        self._stop = threading.Event()
        self._last: list[Host] = []
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def first(self) -> list[Host]:
        """The first answer, waited for. Raises ValueError if there is none."""
        self._last = discover(self._script, self._slots, _LIMIT)
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()
        return self._last

    def _ask(self) -> None:
        failed = False
        while not self._stop.wait(_EVERY):
            try:
                hosts = discover(self._script, self._slots, _LIMIT, may_be_none=True, started=self._started)
            except (ValueError, OSError, subprocess.SubprocessError) as error:
                if not failed:
                    self._events.put(("discovery_failed", str(error)))
                failed = True
                continue
            failed = False
            if hosts != self._last:
                self._last = hosts
                self._events.put(("hosts", hosts))

    def _started(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def stop(self) -> None:
        """Waits for the thread, which a script that hangs does not hold up."""
        self._stop.set()
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join(_EVERY)
