"""Calls that are prepared once and made many times, on the same arrays: MPI's persistent ones."""

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
    """A prepared call. Each :meth:`start` makes it once more, with what is in its arrays then, and each :meth:`wait`
    gives its result, which is in the same memory every time."""

    def __init__(self, submit: Callable[[Request], Handle[Any]], request: Request) -> None:
        self._submit, self._request = submit, request
        self._handle: Handle[Any] | None = None

    def start(self) -> Persistent:
        """Begins the call, in the background. Its arrays must not be touched until it has been waited for.

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
        """Whether ``wait()`` would return, or raise, at once."""
        return self._started().test()

    def wait(self, timeout: float | None = None) -> Any:
        """The result of what was started. Raises what :meth:`ringcomm.Handle.wait` does, and ValueError if nothing
        was."""
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
    """What is copied for a call would be copied once only."""
    if x is None:
        return
    first, second = arrays.source(x), arrays.source(x)
    if first.address != second.address and first.count:
        raise ValueError(
            f"{call} reads the array anew at every start: give one that is contiguous, not a list or number"
        )


def _prepared(call: Callable[Concatenate[Any, P], Any], name: str = "") -> Callable[Concatenate[Any, P], Persistent]:
    """The same call, with the same arguments."""
    name = name or f"{call.__name__}_init"

    def prepare(self: PersistentCalls, /, *args: P.args, **kwargs: P.kwargs) -> Persistent:
        made = Submitted(self, functools.partial(Persistent, self._submit))
        _require_own_memory(args[0] if args else kwargs.get("x"), name)
        return call(made, *args, **kwargs)

    text = f":meth:`{call.__name__}`, prepared: ``start()`` and ``wait()`` on what it returns, again and again."
    return with_signature_of(prepare, call, f"PersistentCalls.{name}", text, "Persistent")


class PersistentCalls(Calls):
    """The calls of :class:`ringcomm.Communicator` that are prepared once and made many times. They run in one order
    with the non-blocking ones, and take what these take; arrays have to be contiguous."""

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
