"""Starts MPI in processes of torchrun, Ray or Spark, which act as their own process managers.

An MPICH process asks its process manager for its rank and for values of other ranks, through a
descriptor, in lines of text (PMI-1's wire protocol: Balaji et al., "PMI: A Scalable Parallel
Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010). Here a thread of the same
process answers. The values are exchanged through a :class:`Space`: the store of torch.distributed,
or an allgather of the system that has started the processes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ringcomm._src.base.errors import RingcommError
from ringcomm._src.platform import mpi_library

_VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE")
_FINALIZE_REPLY = "cmd=finalize_ack rc=0"
_LIMITS = {"kvsname_max": 256, "keylen_max": 256, "vallen_max": 1024}


class Space(Protocol):
    """A table of keys and values that the processes of a job share."""

    def put(self, key: str, value: str) -> None:
        """Publishes a value. Other processes can read it after the next fence."""

    def get(self, key: str) -> str | None:
        """Returns a value; None if no process has put it."""

    def fence(self) -> None:
        """Waits until every process has called it."""


class GatheredSpace:
    """A space over ``allgather``, which returns the arguments of all processes, ordered by rank."""

    def __init__(self, allgather: Callable[[dict[str, str]], Sequence[dict[str, str]]]) -> None:
        self._allgather = allgather
        self._known: dict[str, str] = {}
        self._new: dict[str, str] = {}

    def put(self, key: str, value: str) -> None:
        self._new[key] = value

    def get(self, key: str) -> str | None:
        return self._known.get(key, self._new.get(key))

    def fence(self) -> None:
        for values in self._allgather(self._new):
            self._known.update(values)
        self._new = {}


class Manager:
    """The process manager of one process's MPI. Collective over the processes of `space`."""

    def __init__(self, space: Space, rank: int, size: int) -> None:
        self._space = space
        if rank == 0:
            space.put("job", f"ringcomm_{secrets.token_hex(8)}")
        space.fence()
        self._job = space.get("job")  # MPICH names its shared memory by it
        self._replies = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": f"cmd=maxes {' '.join(f'{name}={value}' for name, value in _LIMITS.items())} rc=0",
            "get_appnum": "cmd=appnum appnum=0 rc=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={self._job} rc=0",
            "get_universe_size": f"cmd=universe_size size={size} rc=0",
            "barrier_in": "cmd=barrier_out rc=0",
            "finalize": _FINALIZE_REPLY,
        }
        self._ours, theirs = socket.socketpair()
        self.descriptor = theirs.detach()  # MPI's end of the connection; the caller closes it
        self.variables = dict(zip(_VARIABLES, map(str, (self.descriptor, rank, size)), strict=True))
        threading.Thread(target=self._run, name="ringcomm-pmi", daemon=True).start()

    def end(self) -> None:
        """Sends the answer to MPI's last message, "finalize", in advance.

        The MPI library sends that message when the process exits; the thread that answers ends
        earlier, with the interpreter.
        """
        self._ours.sendall(f"{_FINALIZE_REPLY}\n".encode("ascii"))

    def _run(self) -> None:
        # An OSError means that MPI's process has died.
        with contextlib.suppress(OSError), self._ours, self._ours.makefile("r", encoding="ascii") as lines:
            for line in lines:
                try:
                    answer = self._answer(dict(word.partition("=")[::2] for word in line.split()))
                except Exception as error:  # MPI aborts and prints this reason
                    answer = f"cmd=error rc=-1 msg={'_'.join(str(error).split())[:200]}"
                self._ours.sendall(f"{answer}\n".encode("ascii"))

    def _answer(self, request: dict[str, str]) -> str:
        command = request.get("cmd", "")
        if command == "put":
            self._space.put(request["key"], request["value"])
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            if (value := self._space.get(request["key"])) is None:
                return "cmd=get_result rc=-1 msg=no_such_key value=none"
            return f"cmd=get_result rc=0 msg=success value={value}"
        if command == "barrier_in":
            self._space.fence()
        return self._replies.get(command, f"cmd={command} rc=-1 msg=unknown_command")


def check_library(size: int, starter: str) -> None:
    """Raises RingcommError if MPI is not derived from MPICH. Does not initialise MPI."""
    version = " ".join(mpi_library.load_only().Get_library_version().split()[:3])
    if "MPICH" not in version:
        raise RingcommError(
            f"{version} needs an MPI launcher: start the job with 'ringrun -np {size} python script.py' instead of "
            f"{starter}. With {starter}, ringcomm needs MPICH: pip install ringcomm[mpich]"
        )


def start_mpi(space: Space, rank: int, size: int, starter: str, call: str) -> None:
    """Initialises MPI without an MPI launcher. Collective over the processes of `space`.

    Parameters
    ----------
    starter : str
        Name of the system that has started the processes, for messages.
    call : str
        Name of the user's call that leads here, for messages.

    Raises
    ------
    ringcomm.RingcommError
        The MPI is not derived from MPICH, or was initialised before, with another number of
        processes.
    """
    import mpi4py

    mpi4py.rc.initialize = False  # ringcomm initialises MPI, and finalises it while threads still run
    mpi = mpi_library.load()
    if mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() == size:
        return  # an earlier call has initialised it
    if mpi.Is_initialized():
        raise RingcommError(
            f"rank {rank} of {size}: MPI was initialised in this process before {call}, so MPI.COMM_WORLD does not "
            f"contain the other ranks. Import mpi4py.MPI and call ringcomm.init() after {call}, or start with ringrun"
        )
    check_library(size, starter)
    manager = Manager(space, rank, size)
    os.environ.update(manager.variables)
    try:
        mpi_library.initialize_beside_threads(manager.end)
    finally:
        for name in _VARIABLES:  # processes that this process starts are not ranks
            os.environ.pop(name, None)
