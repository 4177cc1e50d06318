"""How a process starts and ends ringcomm, and what it can ask of it in between."""

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
    """Raises ValueError before ``init``."""
    if _session is None:
        raise NotInitializedError("ringcomm has not been initialized; use ringcomm.init().")
    process.check_not_forked()
    return _session


def init(comm: Any = None, process_sets: Iterable[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Starts ringcomm. Collective over the ranks that take part; calling it again before ``shutdown`` does nothing.

    Args:
        comm: None: all ranks of ``MPI.COMM_WORLD`` (one rank without ``mpirun``, or where there is no MPI); a list of
            ranks of it (only these call ``init``; empty: all); or an mpi4py communicator.
        process_sets: sets to add at once, the same on all ranks, but for those made from a communicator, which is each
            rank's own; "dynamic" is accepted (sets can always be added later).

    Raises:
        ringcomm.RingcommError: ranks run different versions, or the launcher has started more ranks than MPI knows.
        ringcomm.PeerLostError: one of them died under an earlier runtime.
        ValueError: an option, a rank or a process set makes no sense. After a refused process set ringcomm is
            initialised without any: call ``init`` again with sets that fit.
    """
    global _session
    process.check_process()
    process.check_not_rank_thread("init()")
    if _session is not None and _session.has_its_sets:
        return
    sets = _listed(process_sets)
    if _session is not None:  # an earlier call has refused its sets
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
    """Every rank has left the earlier sessions by now, so nobody uses their communicators. Where a rank is lost these
    are abandoned as they are, for to free them is collective."""
    while ended:
        link = ended.pop()
        if not link.lost():
            link.free()


def shutdown() -> None:
    """Ends ringcomm on this rank: operations of other ranks that still need it fail there with RankLeftError, and so do
    operations in flight here with ShutDownError. ``init`` may be called again, by the same ranks. Before ``init`` it
    does nothing."""
    global _session
    if _session is not None and not process.in_child:
        ending, _session = _session, None
        ending.end()


def is_initialized() -> bool:
    """Whether ``init`` has been called, and ``shutdown`` not since."""
    return _session is not None


def communicator() -> Communicator:
    """The communicator of all ranks, for ordered calls."""
    return session().comm


def empty(shape: int | tuple[int, ...], dtype: Any = "float32", device: str | int | None = None) -> Any:
    """An uninitialised array in memory that the ranks of this host share, or on a GPU (``device="cuda"``: this rank's),
    for operations between all ranks: :meth:`Communicator.empty` of the communicator of all ranks."""
    return session().comm.empty(shape, dtype, device)


def shared_arrays() -> AbstractContextManager[None]:
    """Inside it NumPy's big arrays lie in memory that the ranks of this host share: :meth:`Communicator.shared_arrays`
    of the communicator of all ranks."""
    return session().comm.shared_arrays()


def rank() -> int:
    """This process's rank, 0 to size()-1. ValueError before ``init`` (so do all of these)."""
    return session().rank


def size() -> int:
    """How many ranks there are."""
    return session().size


def local_rank() -> int:
    """This process's number among the ranks on its host."""
    return session().comm.local_rank


def local_size() -> int:
    """Ranks on this host."""
    return session().comm.local_size


def cross_rank() -> int:
    """This host's number among the hosts that have a rank of this local_rank."""
    return session().comm.cross_rank


def cross_size() -> int:
    """Hosts that have a rank of this local_rank."""
    return session().comm.cross_size


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks. Before ``init``: True, as in Horovod."""
    return session().comm.is_homogeneous if is_initialized() else True


def mpi_threads_supported() -> bool:
    """Whether MPI lets several threads call it, so that the worker can drive it in the background."""
    return session().worker.threaded


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts to write a timeline.

    Args:
        file_path: rank 0 writes it; with ``{rank}`` in it every rank writes one of its own.
        mark_cycles: mark each round of agreement on named operations.

    Raises:
        ValueError: not initialised, or a timeline is being written already.
        OSError: the file cannot be written.
    """
    timeline.start(file_path, rank(), mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline and closes its file; without one it does nothing. ValueError if not initialised."""
    session()
    timeline.stop()
