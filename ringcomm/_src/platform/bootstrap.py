"""Finds out which ranks share a host, and gives every rank of a host the arenas of the other ranks.

An arena is a memory file; its descriptor is passed over a Unix socket. MpiLink maps the arenas.
"""

from __future__ import annotations

import array
import contextlib
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ringcomm._src.core import _core

TIMEOUT = 20.0  # seconds that a rank waits for the other ranks of its host
_MOST_FDS = 250  # descriptors in one message; the kernel's limit is 253


def host_key() -> tuple[str, ...]:
    """Returns a key that is equal in processes that can share memory, sockets and process ids."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
        return (socket.gethostname(), boot, *(_namespace(kind) for kind in ("net", "pid", "ipc")))
    return (socket.gethostname(),)


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


@dataclass(frozen=True)
class Topology:
    """The hosts of a communicator's ranks. ``hosts``: ranks of each host, in order of first rank."""

    rank: int
    size: int
    hosts: tuple[tuple[int, ...], ...]
    host_names: tuple[str, ...]
    pids: tuple[int, ...] = ()  # process id of each rank; empty: ranks are threads

    @classmethod
    def single_host(cls, rank: int, size: int, name: str) -> Topology:
        return cls(rank, size, (tuple(range(size)),), (name,))

    @property
    def host(self) -> tuple[int, ...]:
        """Ranks of this rank's host."""
        return next(ranks for ranks in self.hosts if self.rank in ranks)

    @property
    def host_of(self) -> list[int]:
        """Index of the host of each rank."""
        hosts = {rank: host for host, ranks in enumerate(self.hosts) for rank in ranks}
        return [hosts[rank] for rank in range(self.size)]

    @property
    def local_rank(self) -> int:
        return self.host.index(self.rank)

    @property
    def local_size(self) -> int:
        return len(self.host)

    @property
    def cross_rank(self) -> int:
        """Index of this host among the hosts that have this local rank, as in Horovod."""
        return [ranks for ranks in self.hosts if len(ranks) > self.local_rank].index(self.host)

    @property
    def cross_size(self) -> int:
        return sum(len(ranks) > self.local_rank for ranks in self.hosts)

    @property
    def is_homogeneous(self) -> bool:
        return len({len(ranks) for ranks in self.hosts}) == 1


def discover(comm: Any) -> Topology:
    """Returns the topology of an mpi4py communicator. Collective; costs one allgather."""
    processes = comm.allgather((host_key(), os.getpid()))
    ranks_of: dict[tuple[str, ...], list[int]] = {}
    for rank, (key, _) in enumerate(processes):
        ranks_of.setdefault(key, []).append(rank)
    hosts, names = tuple(tuple(ranks) for ranks in ranks_of.values()), tuple(key[0] for key in ranks_of)
    return Topology(comm.Get_rank(), len(processes), hosts, names, tuple(pid for _, pid in processes))


@dataclass
class Arenas:
    """Descriptors of the arena and process of each local rank. The caller owns them."""

    fds: list[int]
    pidfds: list[int]  # -1 for this rank, or if the kernel refused

    def close(self) -> None:
        """Closes the descriptors of the arenas. A Node that maps the arenas keeps duplicates."""
        _close(self.fds)
        self.fds = []


def share_arenas(comm: Any, topology: Topology, make_arena: Callable[[], int] = _core.Node.make_arena) -> Arenas | str:
    """Gives every rank of a host the arenas of all ranks of that host. Collective.

    If a rank fails, returns the reason, which is identical on all ranks of the communicator, and
    leaves no descriptor open. No rank waits longer than ``TIMEOUT`` for a peer.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator of the ranks.
    topology : Topology
        The topology of `comm`.
    make_arena : Callable[[], int]
        Makes this rank's arena and returns its file descriptor.
    """
    deadline = time.monotonic() + TIMEOUT
    listener, address, arena_fd, failure = None, "", -1, ""
    try:  # if this fails, the next allgather informs all ranks before any rank waits for the arena
        arena_fd = make_arena()
        if topology.local_rank == 0:
            listener, address = _listen(topology.local_size)
    except Exception as error:
        failure = f"rank {topology.rank} could not share memory: {error}"
    hello = comm.allgather((address, os.getpid(), failure))
    arenas: Arenas | None = None
    try:
        failure = next((reason for _, _, reason in hello if reason), "")
        if not failure:
            first = hello[topology.host[0]][0]
            fds = (
                _serve_arenas(listener, arena_fd, topology, deadline)
                if listener
                else _request_arenas(first, arena_fd, topology, deadline)
            )
            arenas = Arenas(fds, [_open_pidfd(hello[r][1]) if r != topology.rank else -1 for r in topology.host])
    except Exception as error:  # any error: the peers must receive the reason
        failure = f"rank {topology.rank} could not share memory: {error}"
    finally:
        if listener:
            listener.close()
        if arena_fd >= 0:
            os.close(arena_fd)
    failures = [reason for reason in comm.allgather(failure) if reason]
    if not failures and arenas:
        return arenas
    if arenas:
        _close((*arenas.fds, *arenas.pidfds))
    return failures[0] if failures else "no arenas"


def _open_pidfd(pid: int) -> int:
    """Returns a descriptor that becomes readable when the process ends; -1 if there is none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return -1


def _listen(backlog: int) -> tuple[socket.socket, str]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = "\0ringcomm-" + secrets.token_hex(16)
    listener.bind(address)
    listener.listen(backlog)
    return listener, address


def _same_user(peer: socket.socket) -> bool:
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid == os.geteuid()


def _wait_until(deadline: float, sock: socket.socket) -> None:
    """Makes the socket's next call end by `deadline`. Raises TimeoutError if that has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"another rank of this host did not answer within {TIMEOUT} seconds")
    sock.settimeout(left)


def _connect(peer: socket.socket, address: str, deadline: float) -> None:
    while True:
        _wait_until(deadline, peer)
        try:
            peer.connect(address)
        except BlockingIOError:  # a Unix socket with a timeout does not wait for room in the listener's queue
            time.sleep(0.005)
        else:
            return


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def _serve_arenas(listener: socket.socket, arena_fd: int, topology: Topology, deadline: float) -> list[int]:
    """Collects the arenas of the host's ranks, sends all to each. Runs on the host's first rank."""
    fds = {0: os.dup(arena_fd)}
    peers: dict[int, socket.socket] = {}
    try:
        while len(peers) < topology.local_size - 1:
            _wait_until(deadline, listener)
            peer, _ = listener.accept()
            _wait_until(deadline, peer)
            text, received = _receive(peer) if _same_user(peer) else (b"", [])
            local = int.from_bytes(text, "little")
            if len(received) != 1 or not 0 < local < topology.local_size or local in peers:  # not a rank of this host
                _close(received)
                peer.close()
                continue
            fds[local], peers[local] = received[0], peer
        ordered = [fds[i] for i in range(topology.local_size)]
        for peer in peers.values():
            for first in range(0, len(ordered), _MOST_FDS):
                _wait_until(deadline, peer)
                socket.send_fds(peer, [b"."], ordered[first : first + _MOST_FDS])
    except BaseException:
        _close(fds.values())
        raise
    finally:
        for peer in peers.values():
            peer.close()
    return ordered


def _request_arenas(address: str, arena_fd: int, topology: Topology, deadline: float) -> list[int]:
    """Sends this rank's arena to the host's first rank and receives all arenas."""
    fds: list[int] = []
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            _connect(peer, address, deadline)
            if not _same_user(peer):
                raise PermissionError("the socket of the host's first rank belongs to another user")
            socket.send_fds(peer, [topology.local_rank.to_bytes(4, "little")], [arena_fd])
            while len(fds) < topology.local_size:
                _wait_until(deadline, peer)
                text, received = _receive(peer)
                fds += received
                if not text:
                    raise ConnectionError("the host's first rank closed the socket")
    except BaseException:
        _close(fds)
        raise
    return fds


def _receive(peer: socket.socket) -> tuple[bytes, list[int]]:
    """Receives a message. Returns its text (empty at the end of the stream) and descriptors."""
    room = socket.CMSG_SPACE(_MOST_FDS * array.array("i").itemsize)
    text, ancillary, flags, _ = peer.recvmsg(16, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if flags & socket.MSG_CTRUNC:
        _close(fds)
        raise OSError("the system refused a file descriptor: check the limit of open files (ulimit -n)")
    return text, list(fds)
