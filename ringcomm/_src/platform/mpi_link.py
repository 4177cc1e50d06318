"""Connects ranks that are MPI processes, for the communicator's transports and shared memory.

Also finds ranks that have died, and receives all remaining messages before MPI frees a
communicator.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.base.errors import PeerLostError
from ringcomm._src.core import _core
from ringcomm._src.platform import bootstrap, mpi_library
from ringcomm._src.platform.links import Link
from ringcomm._src.platform.workers import worker

logger = logging.getLogger("ringcomm")

processes = _core.Processes()  # watched processes: the other ranks of this host


def _map_arenas(
    comm: Any, topology: bootstrap.Topology, scratch_slots: Sequence[int] = ()
) -> tuple[_core.Node | None, str]:
    """Makes this rank's arena, gives it to the other ranks of the host and maps theirs. Collective.

    Either all ranks succeed, or no rank uses an arena and all get the same reason.
    """
    shared = bootstrap.share_arenas(comm, topology)
    node, why = None, shared if isinstance(shared, str) else ""
    if not isinstance(shared, str):
        try:
            node = _core.Node(comm.Get_rank(), shared.fds)
            node.watch(shared.pidfds)
            for slot in scratch_slots:
                node.reserve_leader_scratch(slot)
        except (ValueError, OSError) as error:
            node, why = None, str(error)
        finally:
            for fd in (*shared.fds, *shared.pidfds):
                if fd >= 0:
                    os.close(fd)
    reasons = [f"rank {rank}: {reason}" for rank, reason in enumerate(comm.allgather(why)) if reason]
    return (None, reasons[0]) if reasons else (node, "")


def map_arenas_of_hosts(
    comm: Any, topology: bootstrap.Topology, comparison_slots: Sequence[int]
) -> tuple[_core.Node | None, str]:
    if len(topology.hosts) == 1:
        return _map_arenas(comm, topology)
    if all(len(ranks) == 1 for ranks in topology.hosts):
        return None, f"each of the {topology.size} ranks is on a different host"
    here = comm.Split(topology.hosts.index(topology.host), comm.Get_rank())
    try:
        node, why = _map_arenas(here, bootstrap.discover(here), comparison_slots)
    finally:
        here.Free()
    reasons = [reason for reason in comm.allgather(why) if reason]
    return (None, reasons[0]) if reasons else (node, "")


def require_communicator(comm: Any, mpi: Any) -> None:
    """Raises TypeError or ValueError if `comm` is not an mpi4py intracommunicator."""
    if not isinstance(comm, mpi.Comm):
        raise TypeError(
            f"Communicator takes an mpi4py communicator, or None for MPI.COMM_WORLD, not {comm!r}; for a group of "
            "ranks, use MPI.COMM_WORLD.Split(color) or Communicator().split(color)"
        )
    if comm == mpi.COMM_NULL:
        raise ValueError("the communicator is MPI.COMM_NULL: only ranks that are in its group can use it")
    if comm.Is_inter():
        raise ValueError("ringcomm needs an intracommunicator; this is an intercommunicator between two groups")


class MpiLink(Link):
    """A link over private duplicates of an mpi4py communicator, which return errors."""

    def __init__(self, comm: Any, *, owned: bool = False, threads: bool = True) -> None:
        """`owned`: this link frees `comm`. `threads`: the worker thread may call MPI."""
        mpi = mpi_library.load()
        require_communicator(comm, mpi)
        require_alive(comm)
        self._mpi = mpi
        self._owned = [comm] if owned else []
        self._duplicates: list[tuple[Any, list[_core.Transport]]] = []  # each with the transports over it
        self._drain: Drain | None = None  # None while this rank uses the link
        self._threads = threads
        self.ordered, first = self._duplicate(comm)
        self.queued, _ = self._duplicate(comm)
        self._control = first
        self.rank, self.size = first.Get_rank(), first.Get_size()
        self.is_whole_job = self.size == mpi.COMM_WORLD.Get_size()
        self.tags = min(mpi_library.describe(first)["tag_limit"], 1 << 15) * 3 // 4
        self.topology = bootstrap.discover(first)
        self.rank_of = {self.topology.pids[rank]: rank for rank in self.topology.host if rank != self.rank}
        for pid in self.rank_of:
            processes.watch(pid)
        self.reported: set[int] = set()  # ranks that a fatal error has named
        self.worker = worker(threads and mpi.Query_thread() >= mpi.THREAD_MULTIPLE)
        _open.append(self)

    def note_many_open(self) -> None:
        """Warns, once per process, if MANY_OPEN or more links are open."""
        global _many_noted
        if len(_open) >= MANY_OPEN and not _many_noted:
            _many_noted = True
            logger.warning(
                "rank %d has %d communicators open, and each holds memory and file descriptors until close(); close "
                "communicators that are no longer used, or create them in a with statement",
                self.rank,
                len(_open),
            )

    def _duplicate(self, comm: Any) -> tuple[_core.Transport, Any]:
        duplicate = comm.Dup()
        duplicate.Set_errhandler(self._mpi.ERRORS_RETURN)
        transport = _core.Transport.mpi(**mpi_library.describe(duplicate))
        self._duplicates.append((duplicate, [transport]))
        return transport, duplicate

    def exchange(self, item: Any) -> list[Any]:
        return list(self._control.allgather(item))

    def another_transport(self) -> _core.Transport:
        return self._duplicate(self._control)[0]

    def message_transport(self) -> _core.Transport:
        comm, transports = self._duplicates[0]
        transports.append(_core.Transport.mpi(**mpi_library.describe(comm)))
        return transports[-1]

    def share_memory(
        self, ranks: Sequence[int] | None = None, comparison_slots: Sequence[int] = ()
    ) -> tuple[_core.Node | None, str]:
        if ranks is None or len(ranks) == self.size:
            return map_arenas_of_hosts(self._control, self.topology, comparison_slots)
        # Split, not Create_group: in Open MPI the latter may wait for processes outside the group.
        comm = self._control.Split(0 if self.rank in ranks else self._mpi.UNDEFINED, self.rank)
        if comm == self._mpi.COMM_NULL:
            return None, "this rank is not in the group"
        try:
            return map_arenas_of_hosts(comm, bootstrap.discover(comm), comparison_slots)
        finally:
            comm.Free()

    def split(self, color: int | None, key: int) -> Link | None:
        comm = self._control.Split(self._mpi.UNDEFINED if color is None else color, key)
        return None if comm == self._mpi.COMM_NULL else MpiLink(comm, owned=True, threads=self._threads)

    def free(self) -> None:
        if not self._mpi.Is_finalized():
            self._drain = self._drain or Drain(self._control, self._duplicates)
            while not self.lost() and not self._drain.is_done():
                time.sleep(1e-5)
        del self.ordered, self.queued
        _open.remove(self)
        comms = [*self._owned, *(comm for comm, _ in self._duplicates)]
        self._owned, self._duplicates, self._drain = [], [], None
        if not self._mpi.Is_finalized():
            for comm in reversed(comms):
                comm.Free()

    def ranks_of(self, comm: Any) -> list[int]:
        """Returns this link's ranks of the processes in `comm`, sorted.

        Raises ValueError if a process of `comm` is not in this link.
        """
        theirs, ours = comm.Get_group(), self._control.Get_group()
        ranks = sorted(theirs.Translate_ranks(list(range(theirs.Get_size())), ours))
        theirs.Free()
        ours.Free()
        if ranks and ranks[0] < 0:
            raise ValueError("the communicator has processes that did not call init()")
        return ranks

    def lost(self) -> list[int]:
        """Returns the lost ranks: their processes are known to have ended without MPI_Finalize.

        After a loss, no collective MPI call completes.
        """
        return sorted(self.reported.union(self.rank_of[pid] for pid in processes.dead() & self.rank_of.keys()))

    def lost_of(self, group: Any) -> list[int]:
        """Returns the lost ranks that are in `group`, as ranks of `group`."""
        lost = self.lost()
        found = self._control.Get_group().Translate_ranks(lost, group) if lost else []
        return [rank for rank in found if rank >= 0]

    def others_ended(self) -> bool:
        """Returns True after a loss, or once every rank has called this and no message is left.

        Collective, but does not block: call it again until it returns True.
        """
        if self._mpi.Is_finalized() or self.lost():
            return True
        try:
            self._drain = self._drain or Drain(self._control, self._duplicates)
            return self._drain.is_done()
        except self._mpi.Exception:  # a peer is lost
            return True


class Drain:
    """Receives and drops messages for which no rank waits, mostly those of leaving ranks.

    MPI requires that every message is received before its communicator is freed and before
    MPI_Finalize.

    Collective. Every rank sends to every peer the number of messages that it has sent to that peer,
    so that messages in flight are received too.
    """

    PATIENCE = 2.0  # seconds to wait for counted messages; after an MPI error they may never arrive

    def __init__(self, control: Any, duplicates: Sequence[tuple[Any, Sequence[_core.Transport]]]) -> None:
        mpi = mpi_library.load()
        self._status, self._byte = mpi.Status(), mpi.BYTE
        self._duplicates = duplicates
        counts = [[transport.counts() for transport in transports] for _, transports in duplicates]
        sent = np.array([np.sum([sent for sent, _ in of_duplicate], 0) for of_duplicate in counts], np.int64)
        self._missing = np.empty_like(sent.T, order="C")  # messages to receive, by sender and duplicate
        self._received = np.array(
            [np.sum([received for _, received in of_duplicate], 0) for of_duplicate in counts], np.int64
        ).T
        self._sent = np.ascontiguousarray(sent.T)  # MPI reads it until the exchange is complete
        self._exchange = control.Ialltoall(self._sent, self._missing)
        self._deadline: float | None = None  # deadline for all messages; None until their number is known

    def is_done(self) -> bool:
        """Receives arrived messages; does not block. Returns True at the end or after PATIENCE."""
        if self._deadline is None:
            if not self._exchange.Test():
                return False
            self._missing -= self._received
            self._deadline = time.monotonic() + self.PATIENCE
        for index, (comm, _) in enumerate(self._duplicates):
            while (message := comm.Improbe(status=self._status)) is not None:
                self._missing[self._status.Get_source(), index] -= 1
                message.Recv([bytearray(self._status.Get_count(self._byte)), self._byte])
        return bool((self._missing <= 0).all()) or time.monotonic() > self._deadline


MANY_OPEN = 100  # open links of one process that cause a warning
_many_noted = False
_open: list[MpiLink] = []  # links that are not freed


def require_alive(comm: Any, ranks: Sequence[int] | None = None) -> None:
    """Raises PeerLostError if a rank of `comm` (or of `ranks`) is known to be lost."""
    group = comm.Get_group()
    lost = {rank for link in _open for rank in link.lost_of(group) if ranks is None or rank in ranks}
    group.Free()
    if lost:
        raise PeerLostError(
            f"ranks {sorted(lost)} have died, and MPI cannot replace them: start the job again, or create a "
            "communicator of the other ranks",
            tuple(sorted(lost)),
        )


def any_lost() -> bool:
    return any(link.lost() for link in _open)


def await_ends() -> None:
    """Blocks until all ranks of all open links have called this. Mostly sleeps."""
    waiting, began = list(_open), time.monotonic()
    while waiting := [link for link in waiting if not link.others_ended()]:
        time.sleep(min(1e-2, 1e-5 + (time.monotonic() - began) / 8))
