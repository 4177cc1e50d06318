"""The process's workers: the threads, or the callers' turns, in which work in the background is done."""

from __future__ import annotations

import threading

from ringcomm._src.base import affinity
from ringcomm._src.core import _core

_workers: dict[bool, _core.Worker] = {}
_workers_lock = threading.Lock()


def worker(threaded: bool) -> _core.Worker:
    """The process's worker; started at first use. Not `threaded`: callers give it its turns."""
    with _workers_lock:
        if threaded not in _workers:
            with affinity.watch_new_threads():
                _workers[threaded] = _core.Worker(threaded)
        return _workers[threaded]


def live_workers() -> dict[bool, _core.Worker]:
    return _workers
