"""What ``init`` makes and ``shutdown`` ends: the global communicator, and the engine that runs named operations."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ringcomm import _core, affinity, exits, horovod_options, process, timeline
from ringcomm import config as configuration
from ringcomm.agreement import agree_on_sets, exchange_sets, require_equal
from ringcomm.communicator import Communicator
from ringcomm.errors import NotInitializedError
from ringcomm.links import Link
from ringcomm.mpi_library import initialized
from ringcomm.mpi_link import MpiLink, processes, require_alive
from ringcomm.process_sets import ProcessSet, as_ranks, global_process_set
from ringcomm.threads_link import ThreadsLink, ThreadsWorld

logger = logging.getLogger("ringcomm")

ENGINE_SLOT = 2  # of the world's arenas, after the communicator's own two
PLAN_SLOTS = range(ENGINE_SLOT + 1, _core.SLOTS)
SET_SLOT, SET_PLAN_SLOTS = 0, range(1, _core.SLOTS)  # of a process set's own arenas


class Session:
    """Between ``init`` and ``shutdown``. ``comm`` is for ordered calls between all ranks, ``engine`` for named ones."""

    def __init__(self, link: Link, config: configuration.Config) -> None:
        self.link = link
        self.comm = Communicator(link, config)
        self.config = self.comm.config
        self.rank, self.size = link.rank, link.size
        self.worker = link.worker
        self.own = self.comm.own
        engine_config = self.config.engine(link.topology.places, self.own.table)
        self.engine = _core.Engine(link.worker, link.another_transport(), engine_config)
        self.engine.watch(processes, link.rank_of)
        self.sets: list[ProcessSet] = []
        everybody = list(range(self.size))
        set_id = self.engine.add_set(everybody, self.comm._node, ENGINE_SLOT)
        self._attach(global_process_set, set_id, everybody, self.comm._node, PLAN_SLOTS)
        exits.watch(self)
        if self.config.thread_affinity:
            affinity.pin(self.config.thread_affinity, self.comm.local_rank, self.comm.local_size)

    def _attach(
        self, process_set: ProcessSet, set_id: int, ranks: Sequence[int], node: _core.Node | None, slots: range
    ) -> None:
        process_set.attach(self, set_id, ranks, node, slots)
        self.sets.append(process_set)

    def add_set(self, process_set: ProcessSet) -> ProcessSet:
        ranks = self._ranks_of(process_set)
        agree_on_sets("add_process_set", ranks)
        return self._add(process_set, ranks)

    def add_sets(self, process_sets: Sequence[ProcessSet]) -> None:
        """Several at once. A communicator may be another one on every rank: then each of these sets is added, and the
        rank's object becomes its own."""
        agree_on_sets("init", [len(process_sets)])
        for process_set in process_sets:
            mine = self._ranks_of(process_set)
            everybody = exchange_sets("init", [process_set.from_communicator, *mine])
            if not all(row[0] for row in everybody.values()):
                require_equal("init", everybody)
            for ranks in dict.fromkeys(tuple(everybody[rank][1:]) for rank in sorted(everybody)):
                self._add(process_set if list(ranks) == mine else ProcessSet(ranks), list(ranks))

    def _ranks_of(self, process_set: ProcessSet) -> list[int]:
        if process_set.process_set_id is not None:
            raise ValueError(f"{process_set!r} is in use already")
        return process_set.world_ranks(self)

    def _add(self, process_set: ProcessSet, ranks: list[int]) -> ProcessSet:
        if not ranks or ranks[0] < 0 or ranks[-1] >= self.size:
            raise ValueError(f"a process set needs ranks of 0..{self.size - 1}; got {ranks}")
        if any(ranks == other.ranks for other in self.sets):
            raise ValueError(f"there is a process set of ranks {ranks} already")
        if self.config.algorithm:
            mine = ranks.index(self.rank) if self.rank in ranks else None
            self.own.agree_on_default(self.config.algorithm, mine, len(ranks), self._digests)
        node = self._node_for(ranks)
        set_id = self.engine.add_set(ranks, node, SET_SLOT)
        self._attach(process_set, set_id, ranks, node, SET_PLAN_SLOTS)
        return process_set

    def _digests(self, mine: bytes) -> list[bytes]:
        rows = exchange_sets("add_process_set", np.frombuffer(mine, np.int64).tolist())
        return [np.array(rows[rank], np.int64).tobytes() for rank in sorted(rows)]

    def _node_for(self, ranks: list[int]) -> _core.Node | None:
        """Arenas for a part of the world: where the whole world could be on one host, or wherever these ranks are."""
        if len(ranks) == 1 or self.config.shared_memory == "off":
            return None
        node, why = self.link.share_memory(ranks)
        if node is None and self.rank in ranks:
            logger.debug("process set %s uses messages: %s", ranks, why)
        return node

    def remove_set(self, process_set: ProcessSet) -> None:
        agree_on_sets("remove_process_set", [process_set.process_set_id or 0])
        assert process_set.process_set_id is not None
        self.engine.remove_set(process_set.process_set_id)
        self.sets.remove(process_set)
        process_set.detach()

    def translate(self, comm: Any) -> list[int]:
        """The world's ranks that an mpi4py communicator holds."""
        if not isinstance(self.link, MpiLink):
            raise ValueError("process sets from a communicator need MPI")
        return self.link.ranks_of(comm)

    def end(self) -> None:
        self._leave("ringcomm has been shut down")
        exits.unwatch(self)
        exits.unwatch(self.comm)
        if isinstance(self.link, MpiLink):
            self.link.reported.update(self.engine.lost())
            _ended.append(self.link)

    def _leave(self, why: str) -> None:
        self.engine.leave()
        self.comm._leave(why)
        timeline.stop()
        for process_set in self.sets:
            process_set.detach()
        self.sets = []

    def _disable(self, error: Exception) -> None:
        """After a fork. Named operations look at process.in_child themselves, but not those that are remembered."""
        for process_set in self.sets:
            process_set.known = _core.NamedCalls(None, 0)


_session: Session | None = None
_ended: list[MpiLink] = []  # of earlier sessions: freed when all ranks have come to a later init()


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
        ringcomm.RingcommError: ranks run different versions.
        ringcomm.PeerLostError: one of them died under an earlier runtime.
        ValueError: an option, a rank or a process set makes no sense.
    """
    global _session
    process.check_process()
    if _session is not None:
        return
    sets = _listed(process_sets)
    configuration.from_environment.cache_clear()
    config = configuration.from_environment()
    _session = Session(_link(comm, config.mpi_threads), config)
    _free_ended()
    if config.timeline:
        timeline.start(config.timeline, _session.rank, config.timeline_mark_cycles)
    if _session.rank == 0:
        horovod_options.note_ignored(os.environ, _session.size)
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
    while _ended:
        link = _ended.pop()
        if not link.lost():
            link.drain_and_free()


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


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> np.ndarray[Any, Any]:
    """An uninitialised array in memory that the ranks of this host share, for operations between all ranks:
    :meth:`Communicator.empty` of the communicator of all ranks."""
    return session().comm.empty(shape, dtype)


def rank() -> int:
    """This process's rank, 0 to size()-1. ValueError before ``init`` (so do all of these)."""
    return session().rank


def size() -> int:
    """How many ranks there are."""
    return session().size


def local_rank() -> int:
    """This process's place among the ranks on its host."""
    return session().comm.local_rank


def local_size() -> int:
    """Ranks on this host."""
    return session().comm.local_size


def cross_rank() -> int:
    """This host's place among the hosts that have a rank of this local_rank."""
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
