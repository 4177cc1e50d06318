"""However a rank ends, its peers hear of it.

An exception, ``sys.exit`` or Ctrl-C on one rank otherwise leaves the others waiting for ever, and this rank too: MPI's
finalisation waits for everybody. So, in a job of several ranks, while a communicator is open:

- an unhandled exception or Ctrl-C ends the job: the traceback, then one line that names the rank, then ``MPI_Abort``;
- so does ``sys.exit``, or any other SystemExit, with a status that is not zero;
- under ``ringrun --survive`` both end this rank alone;
- the end of the script is a goodbye: peers that still need this rank get RankLeftError, which ends the job if nobody
  handles it; this one sleeps until they end as well;
- a forked child can use nothing of ringcomm, and its end means nothing.

A process of one rank ends as any Python program does.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
import threading
import time
from types import TracebackType
from typing import Any, Protocol

from ringcomm._src.base import process
from ringcomm._src.base.errors import RingcommError
from ringcomm._src.config import config as configuration
from ringcomm._src.core import _core
from ringcomm._src.observe import accounts, timeline
from ringcomm._src.platform import mpi_library
from ringcomm._src.platform.mpi_link import any_lost, await_ends
from ringcomm._src.platform.workers import live_workers
from ringcomm._src.process import guardian

INTERRUPTED = 130  # what shells report for Ctrl-C


class Watched(Protocol):
    """Something that peers may wait for."""

    def _leave(self, why: str) -> None:
        """Says goodbye to the peers. Not collective."""

    def _disable(self, error: Exception) -> None:
        """Makes every later use raise `error`, and touches nothing else."""


_watched: dict[int, Watched] = {}


def watch(it: Watched) -> None:
    """From now on the end of this process is told to `it`'s peers."""
    _watched[id(it)] = it
    _install()


def unwatch(it: Watched) -> None:
    """Its peers have no more to be told."""
    _watched.pop(id(it), None)


def _install() -> None:
    if process.rank_process is not None:
        return
    process.become_rank()
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_in_child)
    _wrap_excepthook()
    _wrap_thread_excepthook()
    _core.watch_exit(threading.main_thread().ident or 0)
    if sys.version_info < (3, 12):
        sys.exit = _exit  # type: ignore[assignment]


def _exit(status: Any = None, /) -> None:
    """As sys.exit: raises SystemExit(status). Before Python 3.12 sys.exit made no exception object that could be seen
    to end."""
    raise SystemExit(*status) if isinstance(status, tuple) else SystemExit(status)


def leave(why: str) -> None:
    """Leaves all peers, while this process goes on: those that wait for it get RankLeftError, with `why`."""
    for it in reversed(list(_watched.values())):
        it._leave(why)
    _watched.clear()


def finish() -> None:
    """Does now what the end of this process does, and finalises MPI. Collective over the ranks."""
    atexit.unregister(_at_exit)
    _at_exit()
    mpi_library.finalize_beside_threads()


# ---- ending the job --------------------------------------------------------------------------------------------------
def _all_ranks() -> Any:
    """MPI's communicator of all ranks while MPI runs, else None."""
    mpi = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return None
    return mpi.COMM_WORLD


def _world() -> Any:
    """The same if there are several and peers may be waiting, else None."""
    if not _watched or os.getpid() != process.rank_process:
        return None
    world = _all_ranks()
    return world if world is not None and world.Get_size() > 1 else None


def end_job(cause: str, status: int) -> None:
    """Ends all ranks, this one included, after one line that says why; this one alone, where the others are to survive.
    With one rank: does nothing."""
    world = _world()
    if world is None:
        return
    alone = configuration.from_environment().survive
    what = "it ends alone" if alone else "ending the job"
    line = f"ringcomm: rank {world.Get_rank()} of {world.Get_size()} ({socket.gethostname()}): {cause}; {what}"
    for stream, text in ((sys.stdout, ""), (sys.stderr, line + "\n")):
        try:
            stream.write(text)
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or None
            pass
    timeline.flush()
    guardian.stop()  # what follows is known
    if alone:
        os._exit(status)
    time.sleep(0.2)  # launchers forward what was written before they learn of the abort
    mpi_library.abort(world, status)


def _describe(error: BaseException | None) -> str:
    if error is None:
        return "unknown error"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _wrap_excepthook() -> None:
    previous = sys.excepthook

    def ringcomm_excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, trace)
        if issubclass(kind, KeyboardInterrupt):
            end_job("KeyboardInterrupt (Ctrl-C)", INTERRUPTED)
        else:
            end_job(_describe(error), 1)

    sys.excepthook = ringcomm_excepthook


def _wrap_thread_excepthook() -> None:
    """A thread that dies of ringcomm's own errors, or inside a call, leaves peers waiting; any other thread's error is
    its own."""
    previous = threading.excepthook

    def ringcomm_thread_excepthook(arguments: threading.ExceptHookArgs) -> None:
        previous(arguments)
        if issubclass(arguments.exc_type, SystemExit):  # ends the thread only
            return
        if isinstance(arguments.exc_value, RingcommError) or _passes_through_ringcomm(arguments.exc_traceback):
            name = arguments.thread.name if arguments.thread else "a thread"
            end_job(f"{_describe(arguments.exc_value)} (in {name})", 1)

    threading.excepthook = ringcomm_thread_excepthook


def _passes_through_ringcomm(trace: TracebackType | None) -> bool:
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "ringcomm":
            return True
        trace = trace.tb_next
    return False


# ---- the end of the process ------------------------------------------------------------------------------------------
def _at_exit() -> None:
    """Runs before mpi4py finalises MPI."""
    if os.getpid() != process.rank_process:
        return
    if status := _core.exit_status():
        end_job(f"sys.exit({status})", status)
    world = _all_ranks()
    accounts.report(0 if world is None else world.Get_rank())
    guardian.stop()
    leave("this process is ending")
    for worker in live_workers().values():
        worker.stop()
    timeline.stop()
    # Not in MPI_Finalize: if others abort while a rank is in there, Open MPI's launcher may crash or hang.
    await_ends()
    if any_lost():  # MPI_Finalize would wait for the dead
        mpi_library.keep_unfinalized()
        _core.end_without_mpi(status or hasattr(sys, "last_value"))


# ---- fork ------------------------------------------------------------------------------------------------------------
def _in_child() -> None:
    """The child has no worker thread, shares MPI's connections with its parent, and may hold its locks: it touches
    nothing."""
    process.enter_child()
    _core.enter_child(process.forked)
    guardian.disconnect()
    timeline.abandon()
    error = process.forked()
    for it in (*_watched.values(), *live_workers().values()):
        if hasattr(it, "_disable"):
            it._disable(error)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(it))  # never destroyed here: destructors would wait for the worker
