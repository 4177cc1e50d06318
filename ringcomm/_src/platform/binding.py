"""Binds ranks to cores if the launcher has not done so, when a communicator opens.

Without binding, the kernel sometimes runs two ranks of a host on one core while another core is
idle. The rank that waits then delays the peer that it waits for. So ranks that may run on the same
cores divide these cores among them, as Open MPI does, if there is at least one core per rank. The
shares contain all of these cores, so that ranks of concurrent jobs do not share the first cores.
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

_bound_cores: Cores = ()  # cores that this process is bound to; empty: not bound by ringcomm
_listeners: list[Callable[[int], None]] = []


def allowed() -> Cores:
    """Returns the cores on which this thread may run, sorted; empty if they are unknown."""
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def cores_of_each(sets: Sequence[Cores]) -> int:
    """Returns the number of cores per rank of a host. `sets`: cores that each rank may use."""
    return (len(set().union(*sets)) or os.cpu_count() or 1) // len(sets)


def _neighbours_together(core: int) -> tuple[int, int, int]:
    """Returns a sort key that groups hardware threads by core, and cores by socket."""
    numbers = []
    for name in ("physical_package_id", "core_id"):
        try:
            numbers.append(int((_CPUS / f"cpu{core}" / "topology" / name).read_text()))
        except (OSError, ValueError):
            numbers.append(0)
    return numbers[0], numbers[1], core


def call_when_bound(listener: Callable[[int], None]) -> None:
    """Calls ``listener`` with the number of cores when this process is bound, or now if it is."""
    _listeners.append(listener)
    if _bound_cores:
        listener(len(_bound_cores))


def share(sets: Sequence[Cores], local_rank: int) -> tuple[Cores, str]:
    """Returns the cores to bind a rank to (empty: do not bind), and the reason for users.

    Parameters
    ----------
    sets : Sequence[Cores]
        The cores on which each rank of the host may run, sorted.
    local_rank : int
        Index of the rank in `sets`.
    """
    own_cores = sets[local_rank]
    sharing = [index for index, cores in enumerate(sets) if cores == own_cores]
    if not own_cores:
        return (), "no: the system does not report the cores of this process"
    if any(cores != own_cores and set(cores) & set(own_cores) for cores in sets):
        return (), "by the launcher; some ranks share cores"
    if len(sharing) == 1:
        return (), "by the launcher" if len(sets) > 1 else "no: one rank runs on this host"
    if len(own_cores) < len(sharing):
        return (), f"no: more ranks ({len(sharing)}) than cores ({len(own_cores)})"
    ordered, index = sorted(own_cores, key=_neighbours_together), sharing.index(local_rank)
    begin, end = (len(own_cores) * bound // len(sharing) for bound in (index, index + 1))
    return tuple(ordered[begin:end]), "each to its share of this host's cores"


def bind(sets: Sequence[Cores], local_rank: int) -> None:
    """Binds all threads of this process, and later ones, to its share of the cores."""
    global _bound_cores, state
    cores, state = share(sets, local_rank)
    if not cores:
        return
    for thread in os.listdir(_THREADS):
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            try:
                os.sched_setaffinity(int(thread), cores)
            except PermissionError as error:
                state = f"no: {error}"
                logger.info("local rank %d is not bound to cores: %s", local_rank, error)
                return
    _bound_cores = cores
    logger.debug("local rank %d runs on cores %s", local_rank, cores)
    for listener in _listeners:
        listener(len(cores))


def shorten_time_slices(seconds: float) -> None:
    """Sets the time slice of this thread and of threads that it starts later. 0: no change.

    A rank that wakes beside a busy process waits some milliseconds for its core, until the slice of
    that process ends. The rank gets the core sooner if its own slice is shorter (Linux 6.12).
    """
    if seconds > 0 and not _core.set_time_slice(round(seconds * 1e9)):
        logger.debug("the system does not let threads set their time slice")
