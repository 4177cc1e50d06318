"""Starts and ends ringcomm in a process (``init``, ``shutdown``), and answers queries about ranks and hosts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ringcomm._src.base import process
from ringcomm._src.base.errors import NotInitializedError
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.config import config as configuration
from ringcomm._src.config import horovod_options
from ringcomm._src.named.process_sets import ProcessSet, as_ranks, global_process_set
from ringcomm._src.named.session import Session, ended
from ringcomm._src.observe import timeline
from ringcomm._src.platform import binding, launchers
from ringcomm._src.platform.links import Link
from ringcomm._src.platform.mpi_library import initialized
from ringcomm._src.platform.mpi_link import MpiLink, require_alive
from ringcomm._src.platform.threads_link import ThreadsLink, ThreadsWorld

__all__ = [
    "communicator",
    "cross_rank",
    "cross_size",
    "empty",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_threads_supported",
    "rank",
    "shared_arrays",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

logger = logging.getLogger("ringcomm")

_session: Session | None = None


def session() -> Session:
    """Returns the session. Raises ValueError before ``init``."""
    if _session is None:
        raise NotInitializedError("ringcomm has not been initialized; use ringcomm.init().")
    process.check_not_forked()
    return _session


def init(comm: Any = None, process_sets: Iterable[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Starts ringcomm. Collective over the ranks that take part; calling it again before ``shutdown`` does nothing.

    Args:
        comm: None: all ranks of ``MPI.COMM_WORLD`` (one rank without ``mpirun`` or without MPI); a list of its ranks
            (only these ranks call ``init``; an empty list: all ranks); or an mpi4py communicator.
        process_sets: sets to add, identical on all ranks, except that sets made from a communicator may differ between
            ranks. "dynamic" is accepted (sets can always be added later).

    Raises:
        ringcomm.RingcommError: ranks run different versions, or the launcher has started more ranks than MPI knows.
        ringcomm.PeerLostError: one of the ranks died in an earlier session.
        ValueError: an option, a rank or a process set is invalid. After an invalid process set, ringcomm is
            initialised without process sets: call ``init`` again with valid sets.
    """
    global _session
    process.check_process()
    process.check_not_rank_thread("init()")
    if _session is not None and _session.has_its_sets:
        return
    sets = _listed(process_sets)
    if _session is not None:  # the earlier call raised for its sets
        _session.add_sets(sets)
        return
    configuration.from_environment.cache_clear()
    config = configuration.from_environment()
    if config.check_launcher:
        launchers.check_world()
    binding.shorten_time_slices(config.time_slice)
    _session = Session(_link(comm, config.mpi_threads), config)
    global_process_set.consist_of(comm)
    _free_ended()
    timeline.start_if_asked(config.timeline, _session.rank, config.timeline_mark_cycles)
    if _session.rank == 0:
        horovod_options.note_ignored(os.environ)
    _session.add_sets(sets)


def _listed(process_sets: Any) -> list[ProcessSet]:
    if process_sets is None or (isinstance(process_sets, str) and process_sets.lower() == "dynamic"):
        return []
    if isinstance(process_sets, str | ProcessSet) or not isinstance(process_sets, Iterable):
        raise ValueError(f'process_sets must be a list of process sets or "dynamic", not {process_sets!r}')
    return [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in process_sets]


def _link(comm: Any, threads: bool) -> Link:
    try:
        mpi = initialized()
    except ImportError as error:
        if comm:
            raise
        logger.info("no MPI: running as one rank (%s)", error)
        return ThreadsLink(ThreadsWorld(1), 0)
    if isinstance(comm, mpi.Comm):
        return MpiLink(comm, threads=threads)
    ranks = [] if comm is None else as_ranks(comm, "init")
    world = mpi.COMM_WORLD
    if not ranks:
        return MpiLink(world, threads=threads)
    if world.Get_rank() not in ranks:
        raise ValueError(f"rank {world.Get_rank()} is not among the ranks given to init(): {ranks}")
    require_alive(world, ranks)
    group = world.Get_group().Incl(ranks)
    try:
        return MpiLink(world.Create_group(group), owned=True, threads=threads)
    finally:
        group.Free()


def _free_ended() -> None:
    """Frees the MPI communicators of earlier sessions, which every rank has left by now.

    Freeing is collective, so the communicators of a session with a lost rank are not freed.
    """
    while ended:
        link = ended.pop()
        if not link.lost():
            link.free()


def shutdown() -> None:
    """Ends ringcomm on this rank. Before ``init`` it does nothing.

    Operations of other ranks that still need this rank fail with RankLeftError; operations in flight here fail with
    ShutDownError. The same ranks may call ``init`` again.
    """
    global _session
    if _session is not None and not process.in_child:
        ending, _session = _session, None
        ending.end()


def is_initialized() -> bool:
    """Returns True if ``init`` has been called, and ``shutdown`` has not been called since."""
    return _session is not None


def communicator() -> Communicator:
    """Returns the communicator of all ranks, for blocking and non-blocking calls in MPI's order."""
    return session().comm


def empty(shape: int | tuple[int, ...], dtype: Any = "float32", device: str | int | None = None) -> Any:
    """Returns an uninitialised array in memory that the ranks of this host share, or in a GPU's memory.

    ``device="cuda"``: on this rank's GPU. It is :meth:`Communicator.empty` of the communicator of all ranks.
    """
    return session().comm.empty(shape, dtype, device)


def shared_arrays() -> AbstractContextManager[None]:
    """Returns a context manager in which NumPy allocates large arrays in memory that the ranks of this host share.

    It is :meth:`Communicator.shared_arrays` of the communicator of all ranks.
    """
    return session().comm.shared_arrays()


def rank() -> int:
    """Returns this process's rank, 0 to size()-1. Raises ValueError before ``init``, as the queries below do."""
    return session().rank


def size() -> int:
    """Returns the number of ranks."""
    return session().size


def local_rank() -> int:
    """Returns this process's index among the ranks on its host."""
    return session().comm.local_rank


def local_size() -> int:
    """Returns the number of ranks on this host."""
    return session().comm.local_size


def cross_rank() -> int:
    """Returns this host's index among the hosts that have a rank of this local_rank."""
    return session().comm.cross_rank


def cross_size() -> int:
    """Returns the number of hosts that have a rank of this local_rank."""
    return session().comm.cross_size


def is_homogeneous() -> bool:
    """Returns True if every host has the same number of ranks; True before ``init``, as in Horovod."""
    return session().comm.is_homogeneous if is_initialized() else True


def mpi_threads_supported() -> bool:
    """Returns True if several threads may call MPI, so that the worker runs operations in the background."""
    return session().worker.threaded


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts to write a timeline.

    Args:
        file_path: file that rank 0 writes; if it contains ``{rank}``, every rank writes a separate file.
        mark_cycles: mark each round of agreement on named operations.

    Raises:
        ValueError: ringcomm is not initialised, or a timeline is being written already.
        OSError: the file cannot be written.
    """
    timeline.start(file_path, rank(), mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline and closes its file; without a timeline it does nothing. Raises ValueError before ``init``."""
    session()
    timeline.stop()
