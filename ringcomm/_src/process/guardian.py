"""Starts the guardian of a host: a process that reports a dead rank and may end the job.

If a rank dies, a launcher names its process at most, and ends the other ranks before any of their
calls detects the death. The guardian sleeps on a connection to each rank of the host, and prints
which rank has died. Slurm's srun leaves the other ranks running unless it is started with
--kill-on-bad-exit. The guardian then ends the step after a grace period, in which ranks may end by
themselves.
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

_TIMEOUT = 10.0  # seconds that the ranks of a host wait for each other
_GRACE = 10  # seconds from a death until the guardian ends the job
_ENDING = 0.2  # seconds that `stop` waits for the guardian to end
_PIDFD_GETFD = 438  # number of the system call, identical on all processors

_connection: socket.socket | None = None  # connection to the guardian, if there is one
_guardian: int | None = None  # process id of the guardian, on the rank that started it


class Hello(NamedTuple):
    """The message that a rank sends to the other ranks of its host."""

    pid: int
    guarded: bool  # True if a guardian of an earlier communicator guards the rank


def hello() -> Hello:
    return Hello(os.getpid(), _connection is not None)


def watch(rank: int, size: int, hellos: Mapping[int, Hello], survive: bool) -> None:
    """Starts the guardian for the ranks of this host. Collective over the host.

    Only the first communicator of several processes starts a guardian. Elastic jobs have no
    guardian, because their driver reports deaths, and ends ranks that have not failed.

    Parameters
    ----------
    rank : int
        Rank of this process.
    size : int
        Number of ranks of the communicator.
    hellos : Mapping[int, Hello]
        Messages of the ranks of this host, by rank.
    survive : bool
        If True, a rank's death leaves the other ranks running.
    """
    global _connection, _guardian
    threads = len({message.pid for message in hellos.values()}) < len(hellos)
    if size < 2 or threads or any(message.guarded for message in hellos.values()) or GENERATION in os.environ:
        return
    first = min(hellos)
    address = f"\0ringcomm-guardian-{hellos[first].pid}"
    # If process descriptors or new processes are not available, deaths are not reported. Everything
    # else works.
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
            except OSError:  # the listener is not ready yet, or its queue is full
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.002)
        connection.send(rank.to_bytes(4, "little"))
        connection.settimeout(_TIMEOUT)
        connection.recv(1)  # the guardian runs, so it reports every later death
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
        to, after = _output_descriptor(scope)
        step = "" if survive else launchers.step_of_slurm(size)
        scancel = shutil.which("scancel") if step else None
        command = [scancel, "--signal=KILL", step] if scancel else []
        guardian = _core.start_guardian(guarded, to, after, -1 if survive else _GRACE, command)
        for other, connection in connections.items():
            if other != rank:
                connection.send(b"+")
        return mine, guardian


def _descriptor(pid: int, scope: contextlib.ExitStack) -> int:
    """Returns a descriptor that becomes readable when the process ends; -1 if it has ended.

    The guardian detects the end of that process by its closed connection.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    scope.callback(os.close, descriptor)
    return descriptor


def stop() -> None:
    """Silences the guardian: processes of this host may end from now on without a message."""
    global _guardian
    if _connection is not None:
        with contextlib.suppress(OSError):  # the guardian has ended
            _connection.send(b".")
    if _guardian is not None:
        pid, _guardian = _guardian, None
        deadline = time.monotonic() + _ENDING  # after a death the guardian stays, to end the other ranks
        with contextlib.suppress(OSError):  # the program has waited for all its children
            while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < deadline:
                time.sleep(0.001)
    disconnect()


def disconnect() -> None:
    """Closes the connection to the guardian.

    A forked child must call it: its copy would keep the connection open when its parent dies.
    """
    global _connection, _guardian
    if _connection is not None:
        _connection.close()
    _connection, _guardian = None, None


def _output_descriptor(scope: contextlib.ExitStack) -> tuple[int, int]:
    """Returns a descriptor to write to, and one of a process to wait for first (-1: none).

    The first descriptor is this process's stderr. But MPICH's launcher stops reading the stderr of
    ranks once a rank has died. If that launcher runs on this host, its own stderr is returned.
    """
    proxy = os.getppid()
    if _name_of(proxy) == "hydra_pmi_proxy" and _name_of(launcher := _parent_of(proxy)).startswith("mpi"):
        with contextlib.suppress(OSError):
            process = _descriptor(launcher, scope)
            # Shares the launcher's open file description. A second open() of a regular file has its
            # own position, so the two writers would overwrite each other.
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
