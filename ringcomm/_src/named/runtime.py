"""Start and end of ringcomm in a process, and queries of ranks and hosts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ringcomm._src.base import process
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.config import config as configuration
from ringcomm._src.config import horovod_options
from ringcomm._src.named.process_sets import ProcessSet, as_ranks, global_process_set
from ringcomm._src.named.session import Session, ended_links
from ringcomm._src.observe import timeline
from ringcomm._src.platform import binding, launchers
from ringcomm._src.platform.links import Link
from ringcomm._src.platform.mpi_library import initialized
from ringcomm._src.platform.mpi_link import MpiLink, require_alive
from ringcomm._src.platform.threads_link import ThreadsLink, ThreadsWorld
from ringcomm._src.process import exits

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
        raise process.not_initialized()
    process.check_not_forked()
    return _session


def init(comm: Any = None, process_sets: Iterable[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Starts ringcomm. Collective over the ranks that take part.

    Calling it again before ``shutdown`` does nothing.

    Parameters
    ----------
    comm : Sequence[int] | mpi4py.MPI.Comm | None
        None or an empty list: all ranks of ``MPI.COMM_WORLD``, which has one rank without
        a launcher. Without MPI, the process is the only rank. A list of ranks of
        ``MPI.COMM_WORLD``: only these ranks call ``init``. An mpi4py communicator: its ranks.
    process_sets : Iterable[ProcessSet | Sequence[int]] | str | None
        Process sets to add. All ranks pass the same number of sets, in the same order, and each set
        has the same ranks everywhere. There is one exception. If every rank makes a set from an
        mpi4py communicator, these communicators may differ, as after ``comm.Split``. All their sets
        are then added. "dynamic" adds no set; sets can always be added later.

    Raises
    ------
    ringcomm.RingcommError
        Ranks run different versions of ringcomm, or the launcher has started more ranks than
        ``MPI.COMM_WORLD`` has.
    ringcomm.PeerLostError
        One of the ranks has died since an earlier ``init`` of this process.
    ValueError
        An option, a rank or a process set is invalid. After an invalid process set, ringcomm is
        initialised without process sets: call ``init`` again with valid sets.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.size()
    2
    """
    global _session
    process.check_process()
    process.check_not_rank_thread("init()")
    if _session is not None and _session.has_its_sets:
        return
    sets = _as_process_sets(process_sets)
    if _session is not None:  # its process sets were invalid in the earlier call
        _session.add_sets(sets)
        return
    configuration.from_environment.cache_clear()
    config = configuration.from_environment()
    if config.check_launcher:
        launchers.check_world()
    binding.shorten_time_slices(config.time_slice)
    _session = Session(_link(comm, config.mpi_threads), config)
    global_process_set.consist_of(comm)
    _free_ended_links()
    timeline.start_if_configured(config, _session.rank)
    if _session.rank == 0:
        horovod_options.log_ignored(os.environ)
    _session.add_sets(sets)


def _as_process_sets(process_sets: Any) -> list[ProcessSet]:
    if process_sets is None or (isinstance(process_sets, str) and process_sets.lower() == "dynamic"):
        return []
    if isinstance(process_sets, str | ProcessSet) or not isinstance(process_sets, Iterable):
        raise ValueError(f'process_sets must be a list of process sets or "dynamic", not {process_sets!r}')
    return [entry if isinstance(entry, ProcessSet) else ProcessSet(entry) for entry in process_sets]


def _link(comm: Any, threads: bool) -> Link:
    try:
        mpi = initialized()
    except ImportError as error:
        if comm:
            raise
        logger.info("MPI cannot be used, so this process runs as the only rank: %s", error)
        return ThreadsLink(ThreadsWorld(1), 0)
    if isinstance(comm, mpi.Comm):
        return MpiLink(comm, threads=threads)
    ranks = [] if comm is None else as_ranks(comm, "init")
    world = mpi.COMM_WORLD
    if not ranks:
        return MpiLink(world, threads=threads)
    if world.Get_rank() not in ranks:
        raise ValueError(f"rank {world.Get_rank()} called init(), but is not among the ranks passed to it: {ranks}")
    require_alive(world, ranks)
    group = world.Get_group().Incl(ranks)
    try:
        return MpiLink(world.Create_group(group), owned=True, threads=threads)
    finally:
        group.Free()


def _free_ended_links() -> None:
    """Frees the MPI communicators of earlier sessions, which every rank has left by now.

    Freeing is collective, so the communicators of a session with a lost rank are not freed.
    """
    while ended_links:
        link = ended_links.pop()
        if not link.lost():
            link.free()


def shutdown() -> None:
    """Ends ringcomm on this rank. Before ``init`` it does nothing.

    Operations of other ranks that still need this rank fail with RankLeftError; operations in
    flight here fail with ShutDownError. The same ranks may call ``init`` again.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.shutdown()
    >>> ringcomm.is_initialized()
    False
    >>> ringcomm.init()
    """
    global _session
    if _session is not None and not process.in_child:
        exits.complete()
        ending, _session = _session, None
        ending.end()


def is_initialized() -> bool:
    """Returns True if ``init`` has been called, and ``shutdown`` has not been called since.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.is_initialized()
    True
    """
    return _session is not None


def communicator() -> Communicator:
    """Returns the communicator of all ranks. As in MPI, all ranks make its calls in the same order.

    Returns
    -------
    Communicator
        The same object in each call. ``shutdown`` closes it.

    Raises
    ------
    ValueError
        Ringcomm is not initialised.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.communicator().allreduce(np.ones(2)).tolist()
    [2.0, 2.0]
    """
    return session().comm


def empty(shape: int | tuple[int, ...], dtype: Any = "float32", device: str | int | None = None) -> Any:
    """Returns an uninitialised array in memory that the ranks of this host share, or on a GPU.

    It is :meth:`Communicator.empty` of the communicator of all ranks.

    Parameters
    ----------
    shape : int | tuple[int, ...]
        Shape of the array.
    dtype
        A NumPy dtype or its name.
    device : str | int | None
        None or "cpu": shared memory; "cuda": this rank's GPU; "cuda:1" or 1: GPU 1.

    Returns
    -------
    np.ndarray | cupy.ndarray | DeviceArray
        An array that in-place reductions use without copies.

    Raises
    ------
    ValueError
        Ringcomm is not initialised, or the device does not exist.
    ringcomm.UnsupportedError
        A GPU is requested, and there is no driver.

    Examples
    --------
    >>> ringcomm.init()
    >>> x = ringcomm.empty((2, 3))
    >>> x.shape, x.dtype.name
    ((2, 3), 'float32')
    """
    return session().comm.empty(shape, dtype, device)


def shared_arrays() -> AbstractContextManager[None]:
    """Returns a context manager in which NumPy allocates large arrays in shared memory.

    Each rank still has separate arrays. The other ranks of this host can read their memory, so
    collectives of these arrays need fewer copies. It is :meth:`Communicator.shared_arrays` of the
    communicator of all ranks.

    Raises
    ------
    ValueError
        Ringcomm is not initialised.

    Examples
    --------
    >>> ringcomm.init()
    >>> with ringcomm.shared_arrays():
    ...     x = np.ones(1 << 20, np.float32)
    >>> float(ringcomm.allreduce(x, op=ringcomm.Sum)[0])
    2.0
    """
    return session().comm.shared_arrays()


def rank() -> int:
    """Returns this process's rank, 0 to size()-1. Raises ValueError before ``init``.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.rank() in range(ringcomm.size())
    True
    """
    return session().rank


def size() -> int:
    """Returns the number of ranks. Raises ValueError before ``init``.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.size()
    2
    """
    return session().size


def local_rank() -> int:
    """Returns this process's index among the ranks on its host. Raises ValueError before ``init``.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.local_rank() in range(ringcomm.local_size())
    True
    """
    return session().comm.local_rank


def local_size() -> int:
    """Returns the number of ranks on this host. Raises ValueError before ``init``.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.local_size() <= ringcomm.size()
    True
    """
    return session().comm.local_size


def cross_rank() -> int:
    """Returns this host's index among the hosts that have a rank of this local_rank.

    Raises
    ------
    ValueError
        Ringcomm is not initialised.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.cross_rank() in range(ringcomm.cross_size())
    True
    """
    return session().comm.cross_rank


def cross_size() -> int:
    """Returns the number of hosts that have a rank of this local_rank.

    Raises
    ------
    ValueError
        Ringcomm is not initialised.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.cross_size() >= 1
    True
    """
    return session().comm.cross_size


def is_homogeneous() -> bool:
    """Returns True if every host has the same number of ranks; True before ``init``, as in Horovod.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.is_homogeneous()
    True
    """
    return session().comm.is_homogeneous if is_initialized() else True


def mpi_threads_supported() -> bool:
    """Returns True if several threads may call MPI, so that operations run in the background.

    Raises
    ------
    ValueError
        Ringcomm is not initialised.

    Examples
    --------
    >>> ringcomm.init()
    >>> isinstance(ringcomm.mpi_threads_supported(), bool)
    True
    """
    return session().worker.threaded


def start_timeline(file_path: str, mark_cycles: bool = False, last: int = 0) -> None:
    """Starts to write a timeline of operations, in the format of Chrome's trace viewer.

    Parameters
    ----------
    file_path : str
        File that rank 0 writes; if it contains ``{rank}``, every rank writes a separate file.
    mark_cycles : bool
        Mark each round in which ranks agree on the named operations that are ready.
    last : int
        The file keeps only the newest events, `last` to 2 `last` of them; 0: all.

    Raises
    ------
    ValueError
        Ringcomm is not initialised, a timeline is already being written, or `last` is negative.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> ringcomm.init()
    >>> path = os.path.join(tempfile.mkdtemp(), "timeline.json")
    >>> ringcomm.start_timeline(path)
    >>> y = ringcomm.allreduce(np.ones(2), name="gradient")
    >>> ringcomm.stop_timeline()
    """
    timeline.start(file_path, rank(), mark_cycles, last)


def stop_timeline() -> None:
    """Ends the timeline and closes its file. Does nothing if no timeline is being written.

    Raises
    ------
    ValueError
        Ringcomm is not initialised.

    Examples
    --------
    >>> ringcomm.init()
    >>> ringcomm.stop_timeline()
    """
    session()
    timeline.stop()
