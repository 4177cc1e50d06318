"""Ordered collectives in the background: run by the worker, in the order submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringcomm import arrays, calls
from ringcomm._core import Request
from ringcomm.handles import Handle
from ringcomm.ops import Op, Sum


class BackgroundCalls:
    """The non-blocking half of :class:`ringcomm.Communicator`."""

    rank: int
    size: int

    if TYPE_CHECKING:

        def _submit(self, request: Request) -> Handle[Any]:
            """Hands one call to the worker."""

        def _algorithm(self, collective: str, name: str | None) -> str:
            """The algorithm's name, once all ranks have agreed on it."""

    def iallreduce(
        self,
        x: Any,
        op: Op = Sum,
        out: Any = None,
        algorithm: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        wire: Any = None,
        name: str = "",
    ) -> Handle[Any]:
        """:meth:`allreduce` in the background: ``handle.wait()`` gives the result. Arrays must not be touched before.

        The first use of a registered algorithm on this communicator waits for all ranks.
        """
        algorithm = self._algorithm("allreduce", algorithm)
        pair = arrays.pair(x, out)
        factors: dict[str, Any] = {"pre": prescale_factor, "post": postscale_factor}
        return self._submit(calls.allreduce(*pair, op, wire, algorithm=algorithm, name=name, **factors))

    def ireduce(
        self,
        x: Any,
        root: int = 0,
        op: Op = Sum,
        out: Any = None,
        algorithm: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        wire: Any = None,
        name: str = "",
    ) -> Handle[Any]:
        """:meth:`reduce` in the background."""
        algorithm = self._algorithm("reduce", algorithm)
        factors: dict[str, Any] = {"pre": prescale_factor, "post": postscale_factor}
        return self._submit(calls.reduce(x, out, root, op, self.rank, wire, algorithm=algorithm, name=name, **factors))

    def ibroadcast(
        self, x: Any, root: int = 0, out: Any = None, algorithm: str | None = None, name: str = ""
    ) -> Handle[Any]:
        """:meth:`broadcast` in the background."""
        algorithm = self._algorithm("broadcast", algorithm)
        return self._submit(calls.broadcast(*arrays.pair(x, out), root, algorithm=algorithm, name=name))

    def iallgather(
        self, x: Any, rows: Sequence[int] | None = None, out: Any = None, algorithm: str | None = None, name: str = ""
    ) -> Handle[Any]:
        """:meth:`allgather` in the background. Without ``rows`` the arrays must have one shape on all ranks."""
        algorithm = self._algorithm("allgather", algorithm)
        return self._submit(calls.allgather(x, out, rows, self.rank, self.size, algorithm=algorithm, name=name))

    def ireducescatter(
        self,
        x: Any,
        op: Op = Sum,
        out: Any = None,
        algorithm: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        wire: Any = None,
        name: str = "",
    ) -> Handle[Any]:
        """:meth:`reducescatter` in the background."""
        algorithm = self._algorithm("reducescatter", algorithm)
        where = arrays.source(x), out, op, self.rank, self.size
        factors: dict[str, Any] = {"pre": prescale_factor, "post": postscale_factor}
        return self._submit(calls.reducescatter(*where, wire, algorithm=algorithm, name=name, **factors))

    def ialltoall(
        self,
        x: Any,
        splits: Any = None,
        received_splits: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Handle[Any]:
        """:meth:`alltoall` in the background; the result is the array alone.

        Either both ``splits`` and ``received_splits`` (rows from each rank) are given, or the arrays have one shape on
        all ranks.
        """
        if (splits is None) != (received_splits is None):
            raise ValueError("ialltoall needs both splits and received_splits, or neither")
        algorithm = self._algorithm("alltoall", algorithm)
        return self._submit(calls.alltoall(x, out, splits, received_splits, self.size, algorithm=algorithm, name=name))

    def ibarrier(self, algorithm: str | None = None, name: str = "") -> Handle[None]:
        """:meth:`barrier` in the background."""
        return self._submit(calls.barrier(algorithm=self._algorithm("barrier", algorithm), name=name))
