"""Non-blocking collectives (``iallreduce`` ...), which the worker runs in order of submission.

Each runs the code of the blocking call with a `SubmittingCalls` as its communicator, which submits
the request instead of running it.
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


class SubmittingCalls(VectorCollectives):
    """A communicator's calls that return `submit(request)` instead of running the request."""

    def __init__(self, calls: Calls, submit: Callable[[Request], Any]) -> None:
        self.rank, self.size = calls.rank, calls.size
        self._submit = submit  # type: ignore[method-assign, assignment]

    def _call(self, request: Request, *_: Any, **__: Any) -> Any:
        return self._submit(request)

    def _run_user_op(self, reduction: UserOpReduction) -> Any:
        """Submits the reduction as one allgather.

        A reduction in parts needs several calls, and each would block for the result of the former.
        """
        return self._submit(reduction.allgather_request())

    def _exchange_rows(self, x: Any, name: str) -> None:
        """Skips the exchange of rows, which would block."""

    def _exchange_splits(self, mine: Any, splits: Sequence[int], name: str) -> NoReturn:
        raise ValueError("ialltoallv and alltoallv_init need recvcounts: a non-blocking call cannot exchange them")


def _nonblocking_form(
    call: Callable[Concatenate[Any, P], Any], text: str = ""
) -> Callable[Concatenate[Any, P], Handle[Any]]:
    """Returns the non-blocking form of a call, with the same arguments."""

    def submit(self: BackgroundCalls, /, *args: P.args, **kwargs: P.kwargs) -> Handle[Any]:
        return call(SubmittingCalls(self, self._submit), *args, **kwargs)

    name = f"i{call.__name__}"
    doc = f"Starts :meth:`{call.__name__}` in the background, and returns its handle.\n\n{text}".rstrip()
    return with_signature_of(submit, call, f"BackgroundCalls.{name}", doc, "Handle[Any]")


class BackgroundCalls(Calls):
    """The non-blocking collectives of :class:`ringcomm.Communicator`."""

    iallreduce = _nonblocking_form(
        VectorCollectives.allreduce,
        "Do not use the arrays before ``handle.wait()`` has returned the result. The first use of a registered "
        "algorithm on this communicator blocks until all ranks call it.",
    )
    ireduce = _nonblocking_form(VectorCollectives.reduce)
    ibroadcast = _nonblocking_form(VectorCollectives.broadcast)
    iallgather = _nonblocking_form(
        VectorCollectives.allgather, "Without ``rows``, the arrays must have the same shape on all ranks."
    )
    ireducescatter = _nonblocking_form(VectorCollectives.reducescatter)
    igather = _nonblocking_form(VectorCollectives.gather)
    igatherv = _nonblocking_form(
        VectorCollectives.gatherv, "Without ``counts``, the arrays must have the same shape on all ranks."
    )
    iscatter = _nonblocking_form(VectorCollectives.scatter)
    iscatterv = _nonblocking_form(VectorCollectives.scatterv)
    iallgatherv = _nonblocking_form(
        VectorCollectives.allgatherv, "Without ``counts``, the arrays must have the same shape on all ranks."
    )
    ialltoallv = _nonblocking_form(VectorCollectives.alltoallv, "``recvcounts`` is required.")
    ireduce_scatter = _nonblocking_form(VectorCollectives.reduce_scatter)
    iscan = _nonblocking_form(VectorCollectives.scan)
    iexscan = _nonblocking_form(VectorCollectives.exscan)
    ibarrier = _nonblocking_form(VectorCollectives.barrier)

    def ialltoall(
        self,
        x: Any,
        splits: Any = None,
        received_splits: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Handle[Any]:
        """Starts :meth:`alltoall` in the background; its result is the received array.

        Give both ``splits`` and ``received_splits`` (rows from each rank), or neither. Without
        them, the arrays must have the same shape on all ranks.
        """
        if (splits is None) != (received_splits is None):
            raise ValueError("ialltoall needs both splits and received_splits, or neither")
        fields = request_fields(algorithm, name)
        return self._submit(row_calls.alltoall(x, out, splits, received_splits, self.size, **fields))
