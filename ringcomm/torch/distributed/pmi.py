"""MPI in processes that torchrun has started: a process manager's part, played by each process for itself.

MPICH asks its process manager who it is and what the others have said through a descriptor, in lines of text (PMI-1's
wire protocol: Balaji et al., "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems", EuroMPI
2010). Here a thread of the same process answers them, and what all must know lies in the store that torch.distributed
already has.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from datetime import timedelta
from typing import Any

from ringcomm import mpi_library
from ringcomm.errors import RingcommError

_VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE")
_LEAVE = "cmd=finalize_ack rc=0"
_LIMITS = {"kvsname_max": 256, "keylen_max": 256, "vallen_max": 1024}


class Manager:
    """Answers one process's MPI, from `store`. The keys of an earlier attempt of torchrun's are other ones."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._size = store, size
        self._prefix = f"pmi/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        if rank == 0:
            store.set(f"{self._prefix}/job", f"ringcomm_{secrets.token_hex(8)}")
        self._job = store.get(f"{self._prefix}/job").decode()  # MPICH names its shared memory by that
        self._known = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": f"cmd=maxes {' '.join(f'{name}={value}' for name, value in _LIMITS.items())} rc=0",
            "get_appnum": "cmd=appnum appnum=0 rc=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={self._job} rc=0",
            "get_universe_size": f"cmd=universe_size size={size} rc=0",
            "barrier_in": "cmd=barrier_out rc=0",
            "finalize": _LEAVE,
        }
        self._barriers = 0
        self._ours, theirs = socket.socketpair()
        os.environ.update(zip(_VARIABLES, (str(theirs.detach()), str(rank), str(size)), strict=True))
        threading.Thread(target=self._run, name="ringcomm-pmi", daemon=True).start()

    def end(self) -> None:
        """Before the thread ends with the interpreter: MPI's library takes its leave when the process exits."""
        self._ours.sendall(f"{_LEAVE}\n".encode("ascii"))

    def _run(self) -> None:
        with self._ours, self._ours.makefile("r", encoding="ascii") as lines:
            for line in lines:
                try:
                    answer = self._answer(dict(word.partition("=")[::2] for word in line.split()))
                except Exception as error:  # MPI ends with this as its reason
                    answer = f"cmd=error rc=-1 msg={'_'.join(str(error).split())[:200]}"
                self._ours.sendall(f"{answer}\n".encode("ascii"))

    def _answer(self, asked: dict[str, str]) -> str:
        command = asked.get("cmd", "")
        if command == "put":
            self._store.set(f"{self._prefix}/{asked['key']}", asked["value"])
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            key = f"{self._prefix}/{asked['key']}"
            if not self._has(key):
                return "cmd=get_result rc=-1 msg=no_such_key value=none"
            return f"cmd=get_result rc=0 msg=success value={self._store.get(key).decode()}"
        if command == "barrier_in":
            self._barrier()
        return self._known.get(command, f"cmd={command} rc=-1 msg=unknown_command")

    def _has(self, key: str) -> bool:
        if hasattr(self._store, "check"):
            return bool(self._store.check([key]))
        try:  # torch 2.1; nobody asks for a key that is still to come
            self._store.wait([key], timedelta(milliseconds=1))
        except RuntimeError:
            return False
        return True

    def _barrier(self) -> None:
        self._barriers += 1
        name = f"{self._prefix}/barrier {self._barriers}"
        if self._store.add(name, 1) == self._size:
            self._store.set(f"{name} is full", "")
        self._store.wait([f"{name} is full"])


def start_mpi(store: Any, rank: int, size: int) -> None:
    """Initialises MPI in a process that no launcher of MPI has started. Collective over the processes of `store`.

    Raises:
        ringcomm.RingcommError: the MPI is not MPICH's kind, or has been initialised already, alone.
    """
    import mpi4py

    mpi4py.rc.initialize = False  # not on loading it: ringcomm does, and finalises it while threads still run
    mpi = mpi_library.load()
    if mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() == size:
        return  # by an earlier init_process_group
    if mpi.Is_initialized():
        raise RingcommError(
            f"rank {rank} of {size}: MPI was initialised in this process before init_process_group, and knows no other "
            "processes. Import mpi4py.MPI and call ringcomm.init() after init_process_group, or start with ringrun"
        )
    version = " ".join(mpi.Get_library_version().split()[:3])
    if "MPICH" not in version:
        raise RingcommError(
            f"{version} needs a launcher of MPI: start the job with 'ringrun -np {size} python script.py' in place of "
            "torchrun (under torchrun ringcomm runs on MPICH: pip install ringcomm[mpich])"
        )
    manager = Manager(store, rank, size)
    try:
        mpi_library.initialize_beside_threads(manager.end)
    finally:
        for name in _VARIABLES:  # processes that this one starts are no ranks
            os.environ.pop(name, None)
