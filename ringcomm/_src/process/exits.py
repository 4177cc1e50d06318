"""Notifies the peers of a rank when the rank ends, or ends the job.

Communicators and the session of named operations register here.

Without this module, the peers of a rank that ends by an exception, ``sys.exit`` or Ctrl-C would
wait for ever. The rank would wait too, because MPI_Finalize waits for all ranks. These rules apply
to a job of several ranks while a communicator is open:

- An unhandled exception or Ctrl-C ends the job: the process prints the traceback and one line that
  names the rank, then calls ``MPI_Abort``.
- ``sys.exit``, or any other SystemExit, with a nonzero status does the same.
- Under ``ringrun --survive`` both end only this rank.
- At the end of the script the rank leaves. Peers that still need it get RankLeftError, which ends
  the job unless the program handles it. This rank sleeps until its peers end as well.
- A forked child cannot use ringcomm, and its end has no effect on the job.

A job of one rank ends as any Python program does.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
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

INTERRUPTED = 130  # exit status that shells report for Ctrl-C


class Watched(Protocol):
    """An object, such as a communicator, in which peers may wait for this rank."""

    def _leave(self, why: str) -> None:
        """Notifies the peers that this rank leaves. Not collective."""

    def _disable(self, error: Exception) -> None:
        """Makes every later use raise `error`, and changes nothing else."""


_watched: dict[int, Watched] = {}
completions: list[Callable[[], None]] = []  # complete what a binding has in flight


def watch(watched: Watched) -> None:
    """Registers `watched`, so that its peers are notified when this process ends."""
    _watched[id(watched)] = watched
    _install()


def unwatch(watched: Watched) -> None:
    """Cancels `watch`: the peers of `watched` need no notification any more."""
    _watched.pop(id(watched), None)


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


def complete() -> None:
    """Completes what bindings have in flight, before this rank joins, shuts down or ends."""
    for one in completions:
        one()


def _exit(status: Any = None, /) -> None:
    """Replaces sys.exit: raises SystemExit(status).

    Before Python 3.12 the original sys.exit made no exception object that the core could observe at
    exit.
    """
    raise SystemExit(*status) if isinstance(status, tuple) else SystemExit(status)


def leave(why: str) -> None:
    """Leaves all peers, which get RankLeftError with the reason `why`. This process continues."""
    for watched in reversed(list(_watched.values())):
        watched._leave(why)
    _watched.clear()


def finish() -> None:
    """Runs the end of a process now, and finalises MPI. Collective over all ranks."""
    atexit.unregister(_at_exit)
    _at_exit()
    mpi_library.finalize_beside_threads()


# ---- ending the job --------------------------------------------------------------------------------------------------
def _all_ranks() -> Any:
    """Returns MPI.COMM_WORLD while MPI runs, else None."""
    mpi = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return None
    return mpi.COMM_WORLD


def _world() -> Any:
    """Returns MPI.COMM_WORLD if peers may be waiting for this rank, else None."""
    if not _watched or os.getpid() != process.rank_process:
        return None
    world = _all_ranks()
    return world if world is not None and world.Get_size() > 1 else None


def end_job(cause: str, status: int) -> None:
    """Prints one line with the cause and ends all ranks; under ``survive``, ends only this rank.

    Does nothing in a job of one rank.
    """
    world = _world()
    if world is None:
        return
    survive = configuration.from_environment().survive
    what = "the other ranks continue" if survive else "ending the job"
    line = f"ringcomm: rank {world.Get_rank()} of {world.Get_size()} ({socket.gethostname()}): {cause}; {what}"
    for stream, text in ((sys.stdout, ""), (sys.stderr, line + "\n")):
        try:
            stream.write(text)
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or None
            pass
    timeline.flush()
    guardian.stop()  # the line above has reported the end, so the guardian must not
    if survive:
        os._exit(status)
    time.sleep(0.2)  # gives launchers time to forward the output before the abort
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
    """Makes an unhandled error of a thread end the job if the error passed through ringcomm.

    Otherwise the peers of this rank would wait for ever. Other errors end only their threads.
    """
    previous = threading.excepthook

    def ringcomm_thread_excepthook(arguments: threading.ExceptHookArgs) -> None:
        previous(arguments)
        if issubclass(arguments.exc_type, SystemExit):  # ends only the thread
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
    """Reports statistics and notifies peers at exit. Runs before mpi4py finalises MPI."""
    if os.getpid() != process.rank_process:
        return
    if status := _core.exit_status():
        end_job(f"sys.exit({status})", status)
    complete()
    world = _all_ranks()
    accounts.report(0 if world is None else world.Get_rank())
    guardian.stop()
    leave("this process is ending")
    for worker in live_workers().values():
        worker.stop()
    timeline.stop()
    # Waits here and not in MPI_Finalize: if peers abort while a rank is in MPI_Finalize, Open MPI's
    # launcher may crash or hang.
    await_ends()
    if any_lost():  # MPI_Finalize would wait for the dead ranks
        mpi_library.keep_unfinalized()
        _core.end_without_mpi(status or hasattr(sys, "last_value"))


# ---- fork ------------------------------------------------------------------------------------------------------------
def _in_child() -> None:
    """Disables ringcomm in a forked child.

    The child has no worker thread, shares MPI's connections with its parent, and may hold copies of
    locked locks. So it must not use or destroy any object of ringcomm.
    """
    process.enter_child()
    _core.enter_child(process.forked)
    guardian.disconnect()
    timeline.abandon()
    error = process.forked()
    for watched in (*_watched.values(), *live_workers().values()):
        if hasattr(watched, "_disable"):
            watched._disable(error)
        # The reference prevents destruction, because destructors would wait for the worker.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(watched))
