"""Binds ranks to cores if the launcher has not. A communicator calls it when it opens.

Without binding, the kernel sometimes runs two ranks of a host on one core while another core is
idle. The rank that waits then delays the peer that it waits for. So ranks that may run on the same
cores divide these cores among them, as Open MPI does, if there is at least one core per rank. All
of these cores are divided, so that the ranks of concurrent jobs spread in the same way.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ringcomm._src.core import _core

logger = logging.getLogger("ringcomm")

Cores = tuple[int, ...]

_CPUS = Path("/sys/devices/system/cpu")
_THREADS = Path("/proc/self/task")

state = "no: no job of several ranks has started"  # shown by `ringcomm info`

_given: Cores = ()  # cores that this process is bound to; empty: not bound by ringcomm
_listeners: list[Callable[[int], None]] = []


def allowed() -> Cores:
    """Returns the cores on which this thread may run, sorted; empty if the system does not report them."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def cores_of_each(sets: Sequence[Cores]) -> int:
    """Returns the number of cores per rank of a host. `sets`: the cores on which each rank may run."""
    return (len(set().union(*sets)) or os.cpu_count() or 1) // len(sets)


def _neighbours_together(core: int) -> tuple[int, int, int]:
    """Returns a sort key: hardware threads of one core, and cores of one socket, become adjacent."""
    numbers = []
    for name in ("physical_package_id", "core_id"):
        try:
            numbers.append(int((_CPUS / f"cpu{core}" / "topology" / name).read_text()))
        except (OSError, ValueError):
            numbers.append(0)
    return numbers[0], numbers[1], core


def when_given(listener: Callable[[int], None]) -> None:
    """Calls ``listener`` with the number of this process's cores when the process is bound: now, if it is already."""
    _listeners.append(listener)
    if _given:
        listener(len(_given))


def share(sets: Sequence[Cores], local_rank: int) -> tuple[Cores, str]:
    """Returns the cores to bind a rank to, and a text for the user. No cores: the rank is not bound, and the text
    gives the reason.

    Args:
        sets: the cores on which each rank of the host may run, sorted.
        local_rank: index of the rank in `sets`.
    """
    mine = sets[local_rank]
    rivals = [index for index, theirs in enumerate(sets) if theirs == mine]
    if not mine:
        return (), "no: the system does not tell which cores there are"
    if any(theirs != mine and set(theirs) & set(mine) for theirs in sets):
        return (), "as the launcher says, with cores in common"
    if len(rivals) == 1:
        return (), "as the launcher says" if len(sets) > 1 else "no: one rank is on this host"
    if len(mine) < len(rivals):
        return (), f"no: {len(rivals)} ranks have {len(mine)} cores"
    ordered, index = sorted(mine, key=_neighbours_together), rivals.index(local_rank)
    begin, end = (len(mine) * bound // len(rivals) for bound in (index, index + 1))
    return tuple(ordered[begin:end]), "to shares of this host's cores"


def bind(sets: Sequence[Cores], local_rank: int) -> None:
    """Binds all threads of this process to its share of the cores. Threads that start later inherit the binding."""
    global _given, state
    cores, state = share(sets, local_rank)
    if not cores:
        return
    for thread in os.listdir(_THREADS):
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            try:
                os.sched_setaffinity(int(thread), cores)
            except PermissionError as error:
                state = f"no: {error}"
                logger.info("ranks keep the cores that they have: %s", error)
                return
    _given = cores
    logger.debug("local rank %d runs on cores %s", local_rank, cores)
    for listener in _listeners:
        listener(len(cores))


def shorten_time_slices(seconds: float) -> None:
    """Sets the time slice of this thread and of the threads that it starts later. 0: leaves it as it is.

    A rank that wakes beside a busy process waits some milliseconds for its core, until the slice of that process ends.
    It gets the core sooner if its own slice is shorter (Linux 6.12).
    """
    if seconds > 0 and not _core.set_time_slice(round(seconds * 1e9)):
        logger.debug("the system lets no thread ask for short time slices")
