"""What process this is: a rank, a fork of one that may use nothing of ringcomm, or a helper that a rank started."""

from __future__ import annotations

import os
import sys
import threading

from ringcomm._src.base.errors import RingcommError

RANK_PROCESS = "RINGCOMM_RANK_PROCESS"  # in the environment of what a rank starts: the rank

rank_process: int | None = None  # the process that is a rank, once it has opened something that peers may wait for
in_child = False  # of a fork
_thread = threading.local()  # `rank`: of a thread of ringcomm.threads.run


def become_rank() -> None:
    """This process is a rank from now on; those that it starts can tell."""
    global rank_process
    rank_process = os.getpid()
    os.environ[RANK_PROCESS] = str(rank_process)


def enter_child() -> None:
    """This process is a fork of a rank from now on."""
    global in_child
    in_child = True


def check_process() -> None:
    """Raises RingcommError in a process that a rank started to help it: it must not take the rank's place in MPI."""
    check_not_forked()
    rank = os.environ.get(RANK_PROCESS, "")
    helper = sys.modules.get("multiprocessing.process")
    if helper is None or rank in ("", str(os.getpid())):
        return
    importing = getattr(helper.current_process(), "_inheriting", False)  # the script, before it knows its parent
    if importing or helper.parent_process() is not None:
        hint = (
            "Such children import the script: put all that only ranks do under if __name__ == '__main__':"
            if importing
            else "Keep ringcomm out of such helpers, or start jobs with ringcomm.run"
        )
        raise RingcommError(
            f"process {os.getpid()} is a child of a rank, process {rank}, started by multiprocessing: it cannot be a "
            f"rank itself. {hint}"
        )


def become_rank_thread(rank: int, size: int) -> None:
    """This thread is a rank of ringcomm.threads.run from now on."""
    _thread.rank = rank, size


def check_not_rank_thread(call: str) -> None:
    """RingcommError in a thread that is a rank: there is one runtime in a process, which would have one rank."""
    if hasattr(_thread, "rank"):
        rank, size = _thread.rank
        raise RingcommError(
            f"{call} in rank {rank} of {size} of ringcomm.threads.run: threads of one process cannot be ranks of its "
            "runtime. Use the communicator that run() gives your function (comm.allreduce(x)), or start processes with "
            "ringrun"
        )


def check_not_forked() -> None:
    if in_child:
        raise forked()


def forked() -> RingcommError:
    return RingcommError(
        f"ringcomm was initialised in process {rank_process}; its forked child {os.getpid()} cannot use it. "
        "Start children with the 'spawn' or 'forkserver' method, or keep ringcomm out of them"
    )
