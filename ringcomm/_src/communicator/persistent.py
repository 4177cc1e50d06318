"""Persistent calls, as in MPI: prepared once, and started many times on the same arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.device.location import DeviceFinish
from ringcomm._src.arrays.forms import P, with_signature_of
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.communicator.background import BackgroundCalls, SubmittingCalls
from ringcomm._src.communicator.call_base import Calls
from ringcomm._src.communicator.vector_collectives import VectorCollectives
from ringcomm._src.core._core import Request


class Persistent:
    """A persistent call, which each :meth:`start` runs on the current values of its arrays.

    Each :meth:`wait` returns the result, always in the same memory.
    """

    def __init__(self, submit: Callable[[Request], Handle[Any]], request: Request) -> None:
        self._submit, self._request = submit, request
        self._handle: Handle[Any] | None = None

    def start(self) -> Persistent:
        """Starts the call in the background. Do not use its arrays until :meth:`wait` has returned.

        Raises
        ------
        ValueError
            ``wait()`` has not returned since the last start.
        """
        if self._handle is not None:
            raise ValueError("this call is in progress: wait() must return before start() is called again")
        if isinstance(self._request.finish, DeviceFinish):
            self._request.finish.begin(self._request)
        self._handle = self._submit(self._request)
        return self

    def test(self) -> bool:
        """Returns True if ``wait()`` would not block."""
        return self._started_handle().test()

    def wait(self, timeout: float | None = None) -> Any:
        """Blocks until the started call is done, and returns its result.

        Raises the errors of :meth:`ringcomm.Handle.wait`, and ValueError if the call has not been
        started.
        """
        handle = self._started_handle()
        try:
            result = handle.wait(timeout)
        except TimeoutError:
            raise
        except Exception:
            self._handle = None
            raise
        self._handle = None
        return result

    def _started_handle(self) -> Handle[Any]:
        if self._handle is None:
            raise ValueError("this call has not been started: call start() first")
        return self._handle


def _require_own_memory(x: Any, call: str) -> None:
    """Raises ValueError if `x` has to be copied: every start would read the first copy."""
    if x is None:
        return
    first, second = arrays.source(x), arrays.source(x)
    if first.address != second.address and first.count:
        raise ValueError(f"{call} reads the array at every start: give a contiguous array, not a list or a number")


def _persistent_form(
    call: Callable[Concatenate[Any, P], Any], name: str = ""
) -> Callable[Concatenate[Any, P], Persistent]:
    """Returns the persistent form of a call, with the same arguments."""
    name = name or f"{call.__name__}_init"

    def prepare(self: PersistentCalls, /, *args: P.args, **kwargs: P.kwargs) -> Persistent:
        calls = SubmittingCalls(self, functools.partial(Persistent, self._submit))
        _require_own_memory(args[0] if args else kwargs.get("x"), name)
        return call(calls, *args, **kwargs)

    doc = f"Prepares a persistent :meth:`{name.removesuffix('_init')}`, to be started any number of times."
    return with_signature_of(prepare, call, f"PersistentCalls.{name}", doc, "Persistent")


class PersistentCalls(Calls):
    """The persistent calls of :class:`ringcomm.Communicator`.

    Persistent calls take the same arguments as the non-blocking calls, and both run in one order.
    Arrays must be contiguous.
    """

    allreduce_init = _persistent_form(VectorCollectives.allreduce)
    reduce_init = _persistent_form(VectorCollectives.reduce)
    broadcast_init = _persistent_form(VectorCollectives.broadcast)
    allgather_init = _persistent_form(VectorCollectives.allgather)
    allgatherv_init = _persistent_form(VectorCollectives.allgatherv)
    reducescatter_init = _persistent_form(VectorCollectives.reducescatter)
    reduce_scatter_init = _persistent_form(VectorCollectives.reduce_scatter)
    alltoall_init = _persistent_form(BackgroundCalls.ialltoall, "alltoall_init")
    alltoallv_init = _persistent_form(VectorCollectives.alltoallv)
    gather_init = _persistent_form(VectorCollectives.gather)
    gatherv_init = _persistent_form(VectorCollectives.gatherv)
    scatter_init = _persistent_form(VectorCollectives.scatter)
    scatterv_init = _persistent_form(VectorCollectives.scatterv)
    scan_init = _persistent_form(VectorCollectives.scan)
    exscan_init = _persistent_form(VectorCollectives.exscan)
    barrier_init = _persistent_form(VectorCollectives.barrier)
