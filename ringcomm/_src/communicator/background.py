"""Non-blocking collectives (``iallreduce`` and so on): the worker runs them in the order of submission.

Each is the blocking call with `Submitted` as its communicator, which submits the request instead of running it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, NoReturn

from ringcomm._src.arrays.forms import P, with_signature_of
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.calls import row_calls
from ringcomm._src.communicator.call_base import Calls, request_fields
from ringcomm._src.communicator.user_op_reduction import UserOpReduction
from ringcomm._src.communicator.vector_collectives import VectorCollectives
from ringcomm._src.core._core import Request


class Submitted(VectorCollectives):
    """The blocking calls of a communicator with their last step replaced: they return `submit(request)`."""

    _can_cache = False

    def __init__(self, calls: Calls, submit: Callable[[Request], Any]) -> None:
        self.rank, self.size = calls.rank, calls.size
        self._submit = submit  # type: ignore[method-assign, assignment]

    def _call(self, request: Request, *_: Any, **__: Any) -> Any:
        return self._submit(request)

    def _reduce_by_user_op(self, reduction: UserOpReduction) -> Any:
        """Submits the reduction as one allgather: in parts, each call would wait for the one before."""
        return self._submit(reduction.gathered())

    def _exchange_rows(self, x: Any, name: str) -> None:
        """Skips the exchange of rows, which would block."""

    def _exchange_splits(self, mine: Any, splits: Sequence[int], name: str) -> NoReturn:
        raise ValueError("in the background, alltoallv needs recvcounts: to ask for them is a call to wait for")


def _in_background(call: Callable[Concatenate[Any, P], Any], text: str) -> Callable[Concatenate[Any, P], Handle[Any]]:
    """Returns the non-blocking form of a call, with the same arguments."""

    def submit(self: BackgroundCalls, /, *args: P.args, **kwargs: P.kwargs) -> Handle[Any]:
        return call(Submitted(self, self._submit), *args, **kwargs)

    name = f"i{call.__name__}"
    return with_signature_of(
        submit, call, f"BackgroundCalls.{name}", f":meth:`{call.__name__}` in the background{text}", "Handle[Any]"
    )


class BackgroundCalls(Calls):
    """The non-blocking collectives of :class:`ringcomm.Communicator`."""

    iallreduce = _in_background(
        VectorCollectives.allreduce,
        """: ``handle.wait()`` gives the result. Arrays must not be touched before.

        The first use of a registered algorithm on this communicator waits for all ranks.
        """,
    )
    ireduce = _in_background(VectorCollectives.reduce, ".")
    ibroadcast = _in_background(VectorCollectives.broadcast, ".")
    iallgather = _in_background(
        VectorCollectives.allgather, ". Without ``rows`` the arrays must have one shape on all ranks."
    )
    ireducescatter = _in_background(VectorCollectives.reducescatter, ".")
    igather = _in_background(VectorCollectives.gather, ".")
    igatherv = _in_background(
        VectorCollectives.gatherv, ". Without ``counts`` the arrays must have one shape on all ranks."
    )
    iscatter = _in_background(VectorCollectives.scatter, ".")
    iscatterv = _in_background(VectorCollectives.scatterv, ".")
    iallgatherv = _in_background(
        VectorCollectives.allgatherv, ". Without ``counts``: as :meth:`iallgather` without rows."
    )
    ialltoallv = _in_background(VectorCollectives.alltoallv, "; ``recvcounts`` must be given.")
    ireduce_scatter = _in_background(VectorCollectives.reduce_scatter, ".")
    iscan = _in_background(VectorCollectives.scan, ".")
    iexscan = _in_background(VectorCollectives.exscan, ".")
    ibarrier = _in_background(VectorCollectives.barrier, ".")

    def ialltoall(
        self,
        x: Any,
        splits: Any = None,
        received_splits: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Handle[Any]:
        """Starts :meth:`alltoall` in the background; its result is the array alone.

        Give both ``splits`` and ``received_splits`` (rows from each rank), or neither: then the arrays must have the
        same shape on all ranks.
        """
        if (splits is None) != (received_splits is None):
            raise ValueError("ialltoall needs both splits and received_splits, or neither")
        how = request_fields(algorithm, name)
        return self._submit(row_calls.alltoall(x, out, splits, received_splits, self.size, **how))
