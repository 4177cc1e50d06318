"""Names the rank that died, and ends the job if its launcher does not.

One process a host, the guardian, sleeps on a connection to each of the host's ranks. Launchers name a process at best,
and end the other ranks before these notice the death by a call. Slurm's srun leaves the other ranks running, unless it
is started with --kill-on-bad-exit: then the guardian ends the step after a while in which ranks may end by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import stat
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from ringcomm._src.core import _core
from ringcomm._src.elastic.agent.protocol import GENERATION
from ringcomm._src.platform import launchers

_TIMEOUT = 10.0  # seconds that a host's ranks wait for each other
_GRACE = 10  # seconds from a death until the job is ended
_ENDING = 0.2  # seconds that the guardian may take to end
_PIDFD_GETFD = 438  # number of the system call, the same on all processors

_connection: socket.socket | None = None  # to the guardian
_guardian: int | None = None  # its process, on the rank that started it


class Hello(NamedTuple):
    """What a rank tells its host's others."""

    pid: int
    guarded: bool  # by the guardian of an earlier communicator


def hello() -> Hello:
    return Hello(os.getpid(), _connection is not None)


def watch(rank: int, size: int, hellos: Mapping[int, Hello], survive: bool) -> None:
    """Guards the ranks of this host: those of the first communicator of several processes. Collective over the host.
    In elastic jobs the driver names deaths, and ends ranks that have done nothing wrong.

    Args:
        rank: of this process.
        size: number of ranks of the communicator.
        hellos: of the ranks of this host.
        survive: a rank's death leaves the other ranks running.
    """
    global _connection, _guardian
    threads = len({it.pid for it in hellos.values()}) < len(hellos)
    if size < 2 or threads or any(it.guarded for it in hellos.values()) or GENERATION in os.environ:
        return
    first = min(hellos)
    address = f"\0ringcomm-guardian-{hellos[first].pid}"
    # Without process descriptors, or in a sandbox without processes, deaths go unnamed and nothing else is lost.
    with contextlib.suppress(OSError, AttributeError, ValueError):
        if rank == first:
            _connection, _guardian = _start(address, rank, size, hellos, survive)
        else:
            _connection = _connect(address, rank)


def _connect(address: str, rank: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deadline = time.monotonic() + _TIMEOUT
    try:
        while True:
            try:
                connection.connect(address)
                break
            except OSError:  # not there yet, or its queue is full
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.002)
        connection.send(rank.to_bytes(4, "little"))
        connection.settimeout(_TIMEOUT)
        connection.recv(1)  # the guardian runs: from now on a death is named
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _start(address: str, rank: int, size: int, hellos: Mapping[int, Hello], survive: bool) -> tuple[socket.socket, int]:
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
            line = f"ringcomm: rank {other} of {size} ({socket.gethostname()}, process {pid}) has died\n"
            guarded.append((_descriptor(pid, scope), connection.fileno(), line))
        to, after = _where_to_write(scope)
        step = "" if survive else launchers.step_of_slurm(size)
        scancel = shutil.which("scancel") if step else None
        command = [scancel, "--signal=KILL", step] if scancel else []
        guardian = _core.start_guardian(guarded, to, after, -1 if survive else _GRACE, command)
        for other, connection in connections.items():
            if other != rank:
                connection.send(b"+")
        return mine, guardian


def _descriptor(pid: int, scope: contextlib.ExitStack) -> int:
    """Becomes readable when the process ends; -1 if it has ended: then its connection is closed."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    scope.callback(os.close, descriptor)
    return descriptor


def stop() -> None:
    """From now on processes of this host may end as they like."""
    global _guardian
    if _connection is not None:
        with contextlib.suppress(OSError):  # it is gone
            _connection.send(b".")
    if _guardian is not None:
        pid, _guardian = _guardian, None
        deadline = time.monotonic() + _ENDING  # after a death it stays, to end the other ranks
        with contextlib.suppress(OSError):  # the program has waited for all its children
            while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < deadline:
                time.sleep(0.001)
    disconnect()


def disconnect() -> None:
    """Also in a forked child, whose copy would keep the connection open when its parent dies."""
    global _connection, _guardian
    if _connection is not None:
        _connection.close()
    _connection, _guardian = None, None


def _where_to_write(scope: contextlib.ExitStack) -> tuple[int, int]:
    """A descriptor for the line, and that of a process whose end is awaited before (-1: none).

    Our stderr; but MPICH's launcher does not read the ranks' any more once a rank has died. If that launcher runs on
    this host, its own stderr.
    """
    proxy = os.getppid()
    if _name_of(proxy) == "hydra_pmi_proxy" and _name_of(launcher := _parent_of(proxy)).startswith("mpi"):
        with contextlib.suppress(OSError):
            process = _descriptor(launcher, scope)
            # The same open file, for a second one of a regular file has a second position: each overwrites the other.
            same = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, 2, 0)
            if same >= 0:
                scope.callback(os.close, same)
                return same, -1
            other = os.open(f"/proc/{launcher}/fd/2", os.O_WRONLY | os.O_APPEND)
            scope.callback(os.close, other)
            return other, process if stat.S_ISREG(os.fstat(other).st_mode) else -1
    ours = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
    scope.callback(os.close, ours)
    return ours, -1


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
