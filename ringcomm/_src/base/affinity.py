"""Pins the worker's thread to the core that ``thread_affinity`` lists for this local rank.

The worker is created inside `watch_new_threads`, which records its thread; the session calls `pin`.
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
    core_numbers = [int(part) for part in text.split(",")]
    if min(core_numbers) < 0:
        raise ValueError("core numbers must not be negative")
    return core_numbers


def pin(text: str, local_rank: int, local_size: int) -> None:
    """Pins ringcomm's threads to this local rank's core; logs a warning if that fails."""
    core_numbers = cores(text)
    if len(core_numbers) < local_size:
        logger.warning(
            "thread_affinity is ignored: it lists %d cores for %d local ranks", len(core_numbers), local_size
        )
        return
    for thread in _threads & _tasks():
        try:
            os.sched_setaffinity(thread, {core_numbers[local_rank]})
        except (OSError, AttributeError) as error:
            logger.warning("cannot pin the worker thread to core %d: %s", core_numbers[local_rank], error)
