"""What a communicator stands on: who its ranks are, transports between them, the memory they share. Over MPI, or over
threads."""

from __future__ import annotations

import abc
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from ringcomm import _core, affinity, bootstrap, mpi_library
from ringcomm.errors import PeerLostError

_workers: dict[bool, _core.Worker] = {}
_workers_lock = threading.Lock()
processes = _core.Processes()  # of ranks of this host, watched


def worker(threaded: bool) -> _core.Worker:
    """The process's worker; started at first use. Not `threaded`: callers give it its turns."""
    with _workers_lock:
        if threaded not in _workers:
            with affinity.watch_new_threads():
                _workers[threaded] = _core.Worker(threaded)
        return _workers[threaded]


def live_workers() -> dict[bool, _core.Worker]:
    return _workers


class Link(abc.ABC):
    """One rank's end. `ordered` and `queued` are transports of their own: for the caller's thread and for the
    worker."""

    rank: int
    size: int
    topology: bootstrap.Topology
    ordered: _core.Transport
    queued: _core.Transport
    tags: int
    worker: _core.Worker
    rank_of: dict[int, int]  # by process number: the other ranks of this host that are processes

    @abc.abstractmethod
    def exchange(self, item: Any) -> list[Any]:
        """Every rank's item, by rank. Collective."""

    @abc.abstractmethod
    def share_memory(
        self, ranks: Sequence[int] | None = None, compared: Sequence[int] = ()
    ) -> tuple[_core.Node | None, str]:
        """Arenas of those of `ranks` (None: all) that are on this host, mapped; or None and why not, the same on each
        of them. `compared`: slots in which ranks of several hosts will compare their calls. Collective over all
        ranks."""

    @abc.abstractmethod
    def another_transport(self) -> _core.Transport:
        """A further transport between all ranks. Collective."""

    @abc.abstractmethod
    def split(self, color: int | None, key: int) -> Link | None:
        """A link between the ranks of one color, in the order of key; None for color None. Collective."""

    @abc.abstractmethod
    def free(self) -> None:
        """Gives everything back. Collective; nothing is under way."""


def _map_arenas(comm: Any, topology: bootstrap.Topology, boards: Sequence[int] = ()) -> tuple[_core.Node | None, str]:
    """Every rank makes an arena, gives it to the others of its host and maps theirs; all succeed, or none uses any.
    Collective."""
    shared = bootstrap.share_arenas(comm, topology)
    node, why = None, shared if isinstance(shared, str) else ""
    if not isinstance(shared, str):
        try:
            node = _core.Node(comm.Get_rank(), shared.fds)
            node.watch(shared.pidfds)
            for slot in boards:
                node.make_board(slot)
        except (ValueError, OSError) as error:
            node, why = None, str(error)
        finally:
            for fd in (*shared.fds, *shared.pidfds):
                if fd >= 0:
                    os.close(fd)
    reasons = [f"rank {rank}: {reason}" for rank, reason in enumerate(comm.allgather(why)) if reason]
    return (None, reasons[0]) if reasons else (node, "")


def _map_arenas_of_hosts(
    comm: Any, topology: bootstrap.Topology, compared: Sequence[int]
) -> tuple[_core.Node | None, str]:
    if len(topology.hosts) == 1:
        return _map_arenas(comm, topology)
    if all(len(ranks) == 1 for ranks in topology.hosts):
        return None, f"each of the {topology.size} ranks is on a host of its own"
    here = comm.Split(topology.hosts.index(topology.host), comm.Get_rank())
    try:
        node, why = _map_arenas(here, bootstrap.discover(here), compared)
    finally:
        here.Free()
    reasons = [reason for reason in comm.allgather(why) if reason]
    return (None, reasons[0]) if reasons else (node, "")


class MpiLink(Link):
    """Over private duplicates of an mpi4py communicator, errors returned."""

    def __init__(self, comm: Any, *, owned: bool = False, threads: bool = True) -> None:
        """`owned`: `comm` is ours to free. `threads`: a thread of ours may call MPI, if MPI allows it."""
        mpi = mpi_library.load()
        if comm.Is_inter():
            raise ValueError("ringcomm needs an intracommunicator")
        require_alive(comm)
        self._mpi = mpi
        self._comms = [comm] if owned else []
        self._ending: Any = None  # MPI's request, once this process ends
        self._threads = threads
        self.ordered, first = self._duplicate(comm)
        self.queued, _ = self._duplicate(comm)
        self._control = first
        self.rank, self.size = first.Get_rank(), first.Get_size()
        self.tags = min(mpi_library.describe(first)["tag_limit"], 1 << 15)
        self.topology = bootstrap.discover(first)
        self.rank_of = {self.topology.pids[rank]: rank for rank in self.topology.host if rank != self.rank}
        for pid in self.rank_of:
            processes.watch(pid)
        self.reported: set[int] = set()  # ranks that a fatal error named
        self.worker = worker(threads and mpi.Query_thread() >= mpi.THREAD_MULTIPLE)
        _open.append(self)

    def _duplicate(self, comm: Any) -> tuple[_core.Transport, Any]:
        mine = comm.Dup()
        mine.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._comms.append(mine)
        return _core.Transport.mpi(**mpi_library.describe(mine)), mine

    def exchange(self, item: Any) -> list[Any]:
        return list(self._control.allgather(item))

    def another_transport(self) -> _core.Transport:
        return self._duplicate(self._control)[0]

    def share_memory(
        self, ranks: Sequence[int] | None = None, compared: Sequence[int] = ()
    ) -> tuple[_core.Node | None, str]:
        if ranks is None or len(ranks) == self.size:
            return _map_arenas_of_hosts(self._control, self.topology, compared)
        # Split and not Create_group, which Open MPI may leave waiting for processes outside the group.
        comm = self._control.Split(0 if self.rank in ranks else self._mpi.UNDEFINED, self.rank)
        if comm == self._mpi.COMM_NULL:
            return None, "this rank is not in the group"
        try:
            return _map_arenas_of_hosts(comm, bootstrap.discover(comm), compared)
        finally:
            comm.Free()

    def split(self, color: int | None, key: int) -> Link | None:
        comm = self._control.Split(self._mpi.UNDEFINED if color is None else color, key)
        return None if comm == self._mpi.COMM_NULL else MpiLink(comm, owned=True, threads=self._threads)

    def free(self) -> None:
        del self.ordered, self.queued
        _open.remove(self)
        comms, self._comms = self._comms, []
        if not self._mpi.Is_finalized():
            for comm in reversed(comms):
                comm.Free()

    def ranks_of(self, comm: Any) -> list[int]:
        """Our ranks of the processes of another communicator, sorted. ValueError if it has others."""
        theirs, ours = comm.Get_group(), self._control.Get_group()
        ranks = sorted(theirs.Translate_ranks(list(range(theirs.Get_size())), ours))
        theirs.Free()
        ours.Free()
        if ranks and ranks[0] < 0:
            raise ValueError("the communicator has processes that did not call init()")
        return ranks

    def drain_and_free(self) -> None:
        """`free` for a link whose ranks left one by one: takes in their goodbyes, lest a later communicator find them.
        Collective."""
        if self._mpi.Is_finalized():
            return
        self._control.Barrier()
        for comm in self._comms:
            while comm.Iprobe():
                status = self._mpi.Status()
                comm.Probe(status=status)
                comm.Recv(
                    [bytearray(status.Get_count(self._mpi.BYTE)), self._mpi.BYTE], status.Get_source(), status.Get_tag()
                )
        self._control.Barrier()
        self.free()

    def lost(self) -> list[int]:
        """Ranks whose processes are known to have ended without MPI's leave: no collective call comes to an end."""
        return sorted(self.reported.union(self.rank_of[pid] for pid in processes.dead() & self.rank_of.keys()))

    def lost_of(self, group: Any) -> list[int]:
        """The same, as ranks of another group."""
        lost = self.lost()
        found = self._control.Get_group().Translate_ranks(lost, group) if lost else []
        return [rank for rank in found if rank >= 0]

    def others_ended(self) -> bool:
        """Whether every rank has asked this, and so uses the link no more, or will never ask. Collective, but waits for
        nobody: ask again until it is so."""
        if self._mpi.Is_finalized() or self.lost():
            return True
        try:
            self._ending = self._ending or self._control.Ibarrier()
            return bool(self._ending.Test())
        except self._mpi.Exception:  # a peer is lost
            return True


_open: list[MpiLink] = []  # not freed


def require_alive(comm: Any, ranks: Sequence[int] | None = None) -> None:
    """Raises PeerLostError if one of `ranks` (None: all) of an mpi4py communicator is known to be lost."""
    group = comm.Get_group()
    lost = {rank for link in _open for rank in link.lost_of(group) if ranks is None or rank in ranks}
    group.Free()
    if lost:
        raise PeerLostError(
            f"ranks {sorted(lost)} have died, and MPI has no others in their place: start the job again, or make a "
            "communicator of the ranks that live",
            tuple(sorted(lost)),
        )


def any_lost() -> bool:
    return any(link.lost() for link in _open)


def await_ends() -> None:
    """Returns when all ranks of all links have come here too. Costs no processor: the naps are up to 10 ms long."""
    waiting, began = list(_open), time.monotonic()
    while waiting := [link for link in waiting if not link.others_ended()]:
        time.sleep(min(1e-2, 1e-5 + (time.monotonic() - began) / 8))


class ThreadsWorld:
    """What ranks that are threads of this process have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.hubs: list[_core.ThreadsHub] = []
        self.nodes: list[_core.Node] = []
        self.parts: list[tuple[ThreadsWorld, list[int]]] = []
        self.lock = threading.Lock()
        self.barrier = threading.Barrier(size)
        self.board: list[Any] = [None] * size

    def exchange(self, rank: int, item: Any) -> list[Any]:
        self.board[rank] = item
        try:
            self.barrier.wait()
            out = list(self.board)
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise PeerLostError("another rank's thread has ended with an error") from None
        return out

    def hub(self, index: int) -> _core.ThreadsHub:
        with self.lock:
            while len(self.hubs) <= index:
                self.hubs.append(_core.ThreadsHub(self.size))
            return self.hubs[index]

    def node(self, rank: int) -> _core.Node:
        with self.lock:
            self.nodes = self.nodes or _core.Node.for_threads(self.size)
            return self.nodes[rank]

    def kill(self, rank: int) -> None:
        """Whoever waits for `rank`, now or later, gets PeerLostError."""
        self.barrier.abort()
        with self.lock:
            for hub in self.hubs:
                hub.kill(rank)
            parts = list(self.parts)
        for part, members in parts:
            if rank in members:
                part.kill(members.index(rank))


class ThreadsLink(Link):
    """One thread's end of a ThreadsWorld; with one rank, also what stands in for MPI where there is none."""

    def __init__(self, world: ThreadsWorld, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size
        self.topology = bootstrap.Topology.single_host(rank, world.size, socket.gethostname())
        self.tags = 1 << 15
        self.rank_of = {}
        self._transports = 0
        self.ordered, self.queued = self.another_transport(), self.another_transport()
        self.worker = worker(True)

    def exchange(self, item: Any) -> list[Any]:
        return self.world.exchange(self.rank, item)

    def another_transport(self) -> _core.Transport:
        self._transports += 1
        return _core.Transport.threads(self.world.hub(self._transports - 1), self.rank)

    def share_memory(
        self, ranks: Sequence[int] | None = None, compared: Sequence[int] = ()
    ) -> tuple[_core.Node | None, str]:
        if ranks is not None and len(ranks) < self.size:
            return None, "ranks are threads, and only some of them take part"
        return self.world.node(self.rank), ""

    def split(self, color: int | None, key: int) -> Link | None:
        everybody = self.exchange((color, key))
        members = sorted((r for r in range(self.size) if everybody[r][0] == color), key=lambda r: (everybody[r][1], r))
        leads = color is not None and members[0] == self.rank
        part = self.exchange(ThreadsWorld(len(members)) if leads else None)[members[0]]
        if color is None:
            return None
        if leads:
            with self.world.lock:
                self.world.parts.append((part, members))
        return ThreadsLink(part, members.index(self.rank))

    def free(self) -> None:
        del self.ordered, self.queued
