"""Which core the worker's thread runs on: ``thread_affinity``, one core per local rank."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("ringcomm")

_TASKS = "/proc/self/task"
_threads: set[int] = set()  # of our own, by the kernel's number


def _tasks() -> set[int]:
    return {int(task) for task in os.listdir(_TASKS)} if os.path.isdir(_TASKS) else set()


@contextmanager
def watch_new_threads() -> Iterator[None]:
    """Threads that start meanwhile are ours."""
    before = _tasks()
    yield
    _threads.update(_tasks() - before)


def cores(text: str) -> list[int]:
    """'0,2' -> [0, 2]. Raises ValueError for anything but cores."""
    listed = [int(part) for part in text.split(",")]
    if min(listed) < 0:
        raise ValueError("cores are numbered from 0")
    return listed


def pin(text: str, local_rank: int, local_size: int) -> None:
    """Puts our threads on this local rank's core; says so if that cannot be done."""
    listed = cores(text)
    if len(listed) < local_size:
        logger.warning("thread_affinity names %d cores for %d local ranks: not used", len(listed), local_size)
        return
    for thread in _threads & _tasks():
        try:
            os.sched_setaffinity(thread, {listed[local_rank]})
        except (OSError, AttributeError) as error:
            logger.warning("the worker's thread cannot run on core %d: %s", listed[local_rank], error)
