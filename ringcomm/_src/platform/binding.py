"""Which cores a rank runs on, where the launcher has not said.

Left alone, the kernel at times runs two ranks of a host on one core while another one is free, and then whoever waits
keeps its peer from coming. So ranks that may run on the same cores, if there are at least as many of these as ranks,
get a share each, as Open MPI gives them. Shares are of all these cores, so that jobs beside each other spread alike.
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

state = "no: no job of several ranks has started"  # for people

_given: Cores = ()  # this process's share
_listeners: list[Callable[[int], None]] = []


def allowed() -> Cores:
    """Where this thread may run, sorted; empty where the system does not tell."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def cores_of_each(sets: Sequence[Cores]) -> int:
    """How many cores there are for every rank of a host, given where each may run."""
    return (len(set().union(*sets)) or os.cpu_count() or 1) // len(sets)


def _neighbours_together(core: int) -> tuple[int, int, int]:
    """Sorts hardware threads of one core, and cores of one socket, side by side."""
    numbers = []
    for name in ("physical_package_id", "core_id"):
        try:
            numbers.append(int((_CPUS / f"cpu{core}" / "topology" / name).read_text()))
        except (OSError, ValueError):
            numbers.append(0)
    return numbers[0], numbers[1], core


def when_given(listener: Callable[[int], None]) -> None:
    """Calls ``listener`` with the number of this process's cores once it has been given a share: now, if it has."""
    _listeners.append(listener)
    if _given:
        listener(len(_given))


def share(sets: Sequence[Cores], local_rank: int) -> tuple[Cores, str]:
    """The cores for a rank, or none and why it keeps what it has.

    Args:
        sets: the cores that each rank of the host may run on, sorted.
        local_rank: this one's index.
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
    """Puts all threads of this process on its share; those to come inherit it."""
    global _given, state
    cores, state = share(sets, local_rank)
    if not cores:
        return
    for thread in os.listdir(_THREADS):
        with contextlib.suppress(ProcessLookupError):  # it has ended
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
    """Of this thread, and of those that it will start. Beside a busy process, a rank that is woken by another waits for
    its core until that process's slice is over, some milliseconds, unless its own are shorter (Linux 6.12)."""
    if seconds > 0 and not _core.set_time_slice(round(seconds * 1e9)):
        logger.debug("the system lets no thread ask for short time slices")
