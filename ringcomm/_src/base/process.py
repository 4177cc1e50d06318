"""The role of this process or thread: a rank, a fork of a rank, or a rank's helper process.

Forks and helpers must not communicate as ranks: the checks here raise RingcommError in them.
"""

from __future__ import annotations

import os
import sys
import threading

from ringcomm._src.base.errors import NotInitializedError, RingcommError

RANK_PROCESS = "RINGCOMM_RANK_PROCESS"  # environment variable that child processes inherit: the rank's process id

rank_process: int | None = None  # the rank's process id; None before peers may wait for this rank
in_child = False  # True in a forked child of a rank
_thread = threading.local()  # `rank`: (rank, size) of a thread of ringcomm.threads.run


def become_rank() -> None:
    """Marks this process as a rank; child processes find the mark in their environment."""
    global rank_process
    rank_process = os.getpid()
    os.environ[RANK_PROCESS] = str(rank_process)


def enter_child() -> None:
    """Marks this process as a forked child of a rank."""
    global in_child
    in_child = True


def check_process() -> None:
    """Raises RingcommError in a helper process of a rank, which must not call MPI as that rank."""
    check_not_forked()
    rank = os.environ.get(RANK_PROCESS, "")
    helper = sys.modules.get("multiprocessing.process")
    if helper is None or rank in ("", str(os.getpid())):
        return
    importing = getattr(helper.current_process(), "_inheriting", False)  # it imports the script
    if importing or helper.parent_process() is not None:
        hint = (
            "The child imports the script: put code for ranks only under if __name__ == '__main__':"
            if importing
            else "Do not use ringcomm in helper processes, or start jobs with ringcomm.run"
        )
        raise RingcommError(
            f"process {os.getpid()} is a child of a rank, process {rank}, started by multiprocessing, and cannot be a "
            f"rank itself. {hint}"
        )


def become_rank_thread(rank: int, size: int) -> None:
    """Marks this thread as a rank of ringcomm.threads.run."""
    _thread.rank = rank, size


def check_not_rank_thread(call: str) -> None:
    """Raises RingcommError in a thread that is a rank: the runtime serves processes only."""
    if hasattr(_thread, "rank"):
        rank, size = _thread.rank
        raise RingcommError(
            f"{call} was called in rank {rank} of {size} of ringcomm.threads.run: these ranks are threads without a "
            "runtime. Use the communicator that run() passes to the function (comm.allreduce(x)), or start processes "
            "with ringrun"
        )


def not_initialized() -> RingcommError:
    """Returns the error of a call before ``init``, or raises that of a rank that is a thread."""
    check_not_rank_thread("a function that needs init()")
    return NotInitializedError("ringcomm has not been initialized; use ringcomm.init().")


def check_not_forked() -> None:
    if in_child:
        raise forked()


def forked() -> RingcommError:
    return RingcommError(
        f"ringcomm was initialised in process {rank_process}; its forked child {os.getpid()} cannot use it. "
        "Start children with the 'spawn' or 'forkserver' method, or do not use ringcomm in them"
    )
