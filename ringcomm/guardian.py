"""Says which rank died, at once: launchers name a process at best, and end the others before these can find out by a
call.

One process a host, the guardian, sleeps on a connection to each of the host's ranks. It only speaks: that calls fail is
the core's work, that the job ends the launcher's.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import IO, NamedTuple

from ringcomm import _core

_TIMEOUT = 10.0  # seconds that a host's ranks wait for each other

_connection: socket.socket | None = None  # to the guardian
_guardian: int | None = None  # its process, on the rank that started it


class Hello(NamedTuple):
    """What a rank tells its host's others."""

    pid: int
    guarded: bool  # by the guardian of an earlier communicator


def hello() -> Hello:
    return Hello(os.getpid(), _connection is not None)


def watch(rank: int, size: int, hellos: Mapping[int, Hello]) -> None:
    """Has the processes of this host watched. The first communicator of several of them is what counts."""
    global _connection, _guardian
    if len({it.pid for it in hellos.values()}) < 2 or any(it.guarded for it in hellos.values()):
        return
    first = min(hellos)
    address = f"\0ringcomm-guardian-{hellos[first].pid}"
    # A kernel without process descriptors, a sandbox without processes: nobody speaks, and nothing else is lost.
    with contextlib.suppress(OSError, AttributeError, ValueError):
        if rank == first:
            _connection, _guardian = _start(address, rank, size, hellos)
        else:
            _connection = _connect(address, rank)


def _connect(address: str, rank: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            connection.connect(address)
            connection.send(rank.to_bytes(4, "little"))
            return connection
        except OSError:  # not there yet, or its queue is full
            if time.monotonic() > deadline:
                connection.close()
                raise
        time.sleep(0.002)


def _start(address: str, rank: int, size: int, hellos: Mapping[int, Hello]) -> tuple[socket.socket, int]:
    with contextlib.ExitStack() as scope:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connections = {rank: scope.enter_context(theirs)}
        listener = scope.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(address)
        listener.listen(len(hellos))
        listener.settimeout(_TIMEOUT)
        while len(connections) < len(hellos):
            peer, _ = listener.accept()
            scope.enter_context(peer)
            peer.settimeout(_TIMEOUT)
            connections[int.from_bytes(peer.recv(4), "little")] = peer
        guarded = []
        for other, connection in connections.items():
            pid = hellos[other].pid
            watched = scope.enter_context(os.fdopen(os.pidfd_open(pid), "rb", buffering=0)).fileno()
            line = f"ringcomm: rank {other} of {size} ({socket.gethostname()}, process {pid}) has died\n"
            guarded.append((watched, connection.fileno(), line))
        stream = scope.enter_context(_where_to_write())
        return mine, _core.start_guardian(guarded, stream.fileno())


def stop() -> None:
    """From now on processes of this host may end as they like."""
    global _guardian
    if _connection is not None:
        with contextlib.suppress(OSError):  # it is gone
            _connection.send(b".")
    if _guardian is not None:
        pid, _guardian = _guardian, None
        with contextlib.suppress(OSError):  # the program has waited for all its children
            os.waitpid(pid, 0)
    disconnect()


def disconnect() -> None:
    """Also in a forked child, whose copy would keep the connection open when its parent dies."""
    global _connection, _guardian
    if _connection is not None:
        _connection.close()
    _connection, _guardian = None, None


def _where_to_write() -> IO[bytes]:
    """Our stderr; but MPICH's launcher reads the ranks' no more once one has died, so with it on this host, its own."""
    proxy = os.getppid()
    if _name_of(proxy) == "hydra_pmi_proxy" and _name_of(launcher := _parent_of(proxy)).startswith("mpi"):
        with contextlib.suppress(OSError):
            return open(f"/proc/{launcher}/fd/2", "ab", buffering=0)
    return os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "ab", buffering=0)


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
