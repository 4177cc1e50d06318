"""Discovers hosts: runs the user's script periodically and reports changes.

`run` in this package starts it for ``--host-discovery-script``.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from typing import Any

from ringcomm._src.launch.hosts import Host, discover

_EVERY = 1.0  # seconds between two runs of the script
_LIMIT = 30.0  # time limit of the script, in seconds


class Discovery:
    """The discovery thread.

    It puts ("hosts", [Host, ...]) into `events` when the script's answer changes, and
    ("discovery_failed", why) when the script starts to fail.
    """

    def __init__(self, script: str, slots: int | None, events: queue.SimpleQueue[tuple[Any, ...]]) -> None:
        self._script, self._slots, self._events = script, slots, events
        self._stop = threading.Event()
        self._last: list[Host] = []
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def first(self) -> list[Host]:
        """Waits for the first answer, and starts the thread. Raises ValueError if there is none."""
        self._last = discover(self._script, self._slots, _LIMIT)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        return self._last

    def _poll(self) -> None:
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
        """Stops the thread and waits for it. Kills a running script."""
        self._stop.set()
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join(_EVERY)
