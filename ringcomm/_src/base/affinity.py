"""Pins the worker's thread to a core, as the option ``thread_affinity`` asks: one core per local rank.

The session records the threads that start while it opens (`watch_new_threads`), then calls `pin`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("ringcomm")

_TASKS = "/proc/self/task"
_threads: set[int] = set()  # kernel thread ids of ringcomm's threads


def _tasks() -> set[int]:
    return {int(task) for task in os.listdir(_TASKS)} if os.path.isdir(_TASKS) else set()


@contextmanager
def watch_new_threads() -> Iterator[None]:
    """Records every thread that starts inside the block as a thread of ringcomm."""
    before = _tasks()
    yield
    _threads.update(_tasks() - before)


def cores(text: str) -> list[int]:
    """Parses a list of cores: '0,2' -> [0, 2]. Raises ValueError for any other text."""
    listed = [int(part) for part in text.split(",")]
    if min(listed) < 0:
        raise ValueError("cores are numbered from 0")
    return listed


def pin(text: str, local_rank: int, local_size: int) -> None:
    """Pins ringcomm's threads to this local rank's core; logs a warning if that fails."""
    listed = cores(text)
    if len(listed) < local_size:
        logger.warning("thread_affinity names %d cores for %d local ranks: not used", len(listed), local_size)
        return
    for thread in _threads & _tasks():
        try:
            os.sched_setaffinity(thread, {listed[local_rank]})
        except (OSError, AttributeError) as error:
            logger.warning("the worker's thread cannot run on core %d: %s", listed[local_rank], error)
