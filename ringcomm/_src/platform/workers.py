"""Holds the process's workers, which do background work: one in a thread, one in turns that callers give it.

Links of all communicators share them.
"""

from __future__ import annotations

import threading

from ringcomm._src.base import affinity
from ringcomm._src.core import _core

_workers: dict[bool, _core.Worker] = {}
_workers_lock = threading.Lock()


def worker(threaded: bool) -> _core.Worker:
    """Returns the process's worker, and starts it at the first call. Not `threaded`: it runs when callers give it
    turns."""
    with _workers_lock:
        if threaded not in _workers:
            with affinity.watch_new_threads():
                _workers[threaded] = _core.Worker(threaded)
        return _workers[threaded]


def live_workers() -> dict[bool, _core.Worker]:
    return _workers
