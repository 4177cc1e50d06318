"""Persistent calls, as in MPI: prepared once, and started many times on the same arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.device.location import Joined
from ringcomm._src.arrays.forms import P, with_signature_of
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.communicator.background import BackgroundCalls, Submitted
from ringcomm._src.communicator.call_base import Calls
from ringcomm._src.communicator.vector_collectives import VectorCollectives
from ringcomm._src.core._core import Request


class Persistent:
    """A persistent call. Each :meth:`start` runs it on the current values of its arrays.

    Each :meth:`wait` returns its result, which is in the same memory every time.
    """

    def __init__(self, submit: Callable[[Request], Handle[Any]], request: Request) -> None:
        self._submit, self._request = submit, request
        self._handle: Handle[Any] | None = None

    def start(self) -> Persistent:
        """Starts the call in the background. Do not use its arrays until :meth:`wait` has returned.

        Raises:
            ValueError: the last start has not been waited for.
        """
        if self._handle is not None:
            raise ValueError("this call is under way: wait() for it before it is started again")
        if isinstance(self._request.finish, Joined):
            self._request.finish.begin(self._request)
        self._handle = self._submit(self._request)
        return self

    def test(self) -> bool:
        """Returns True if ``wait()`` would return, or raise, immediately."""
        return self._started().test()

    def wait(self, timeout: float | None = None) -> Any:
        """Blocks until the started call is done, and returns its result.

        Raises the errors of :meth:`ringcomm.Handle.wait`, and ValueError if the call has not been started.
        """
        handle = self._started()
        try:
            result = handle.wait(timeout)
        except TimeoutError:
            raise
        except Exception:
            self._handle = None
            raise
        self._handle = None
        return result

    def _started(self) -> Handle[Any]:
        if self._handle is None:
            raise ValueError("this call has not been started")
        return self._handle


def _require_own_memory(x: Any, call: str) -> None:
    """Raises ValueError if `x` has to be copied: a persistent call would read the first copy at every start."""
    if x is None:
        return
    first, second = arrays.source(x), arrays.source(x)
    if first.address != second.address and first.count:
        raise ValueError(
            f"{call} reads the array anew at every start: give one that is contiguous, not a list or number"
        )


def _prepared(call: Callable[Concatenate[Any, P], Any], name: str = "") -> Callable[Concatenate[Any, P], Persistent]:
    """Returns the persistent form of a call, with the same arguments."""
    name = name or f"{call.__name__}_init"

    def prepare(self: PersistentCalls, /, *args: P.args, **kwargs: P.kwargs) -> Persistent:
        made = Submitted(self, functools.partial(Persistent, self._submit))
        _require_own_memory(args[0] if args else kwargs.get("x"), name)
        return call(made, *args, **kwargs)

    text = f":meth:`{call.__name__}`, prepared: ``start()`` and ``wait()`` on what it returns, again and again."
    return with_signature_of(prepare, call, f"PersistentCalls.{name}", text, "Persistent")


class PersistentCalls(Calls):
    """The persistent calls of :class:`ringcomm.Communicator`.

    They share one order with the non-blocking calls, and take the same arguments; arrays must be contiguous.
    """

    allreduce_init = _prepared(VectorCollectives.allreduce)
    reduce_init = _prepared(VectorCollectives.reduce)
    broadcast_init = _prepared(VectorCollectives.broadcast)
    allgather_init = _prepared(VectorCollectives.allgather)
    allgatherv_init = _prepared(VectorCollectives.allgatherv)
    reducescatter_init = _prepared(VectorCollectives.reducescatter)
    reduce_scatter_init = _prepared(VectorCollectives.reduce_scatter)
    alltoall_init = _prepared(BackgroundCalls.ialltoall, "alltoall_init")
    alltoallv_init = _prepared(VectorCollectives.alltoallv)
    gather_init = _prepared(VectorCollectives.gather)
    gatherv_init = _prepared(VectorCollectives.gatherv)
    scatter_init = _prepared(VectorCollectives.scatter)
    scatterv_init = _prepared(VectorCollectives.scatterv)
    scan_init = _prepared(VectorCollectives.scan)
    exscan_init = _prepared(VectorCollectives.exscan)
    barrier_init = _prepared(VectorCollectives.barrier)
