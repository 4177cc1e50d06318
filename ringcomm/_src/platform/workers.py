"""Holds the process's background workers: one with a thread, and one that callers run.

Links of all communicators share them.
"""

from __future__ import annotations

import threading

from ringcomm._src.base import affinity
from ringcomm._src.core import _core

_workers: dict[bool, _core.Worker] = {}
_workers_lock = threading.Lock()


def worker(threaded: bool) -> _core.Worker:
    """Returns a worker of the process. `threaded`: it has a thread; else callers run it."""
    with _workers_lock:
        if threaded not in _workers:
            with affinity.watch_new_threads():
                _workers[threaded] = _core.Worker(threaded)
        return _workers[threaded]


def live_workers() -> dict[bool, _core.Worker]:
    return _workers
