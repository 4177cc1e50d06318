"""MPI's further collectives: gather, scatter, scan, and vector forms (``gatherv`` ...).

They are composed of the collectives of the core. Counts are numbers of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.rows import splits_of
from ringcomm._src.base import arguments
from ringcomm._src.base.ops import Op, Sum, UserOp, as_op
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.calls.calls import ALLTOALL, EXSCAN, SCAN
from ringcomm._src.communicator.call_base import cached, request_fields
from ringcomm._src.communicator.ordered import OrderedCalls
from ringcomm._src.communicator.user_op_reduction import UserOpReduction
from ringcomm._src.core import _core

GATHER, SCATTER = range(2)  # first number of the cache key of an all-to-all; the second is the root


class VectorCollectives(OrderedCalls):
    """The vector collectives of :class:`ringcomm.Communicator`.

    Counts are numbers of rows along the first dimension, one count for each rank. The ranks' rows
    are in rank order, without gaps. A gather takes a 0-dimensional array as one row.
    """

    @cached(ALLTOALL, GATHER)
    def gather(self, x: Any, root: int = 0, out: Any = None, name: str = "") -> Any:
        """Returns every rank's ``x``, concatenated along the first dimension, on ``root``.

        The other ranks get None. Dtype and shape are the same on all ranks. The ``out`` of the
        other ranks is not used.
        """
        root = arguments.root("gather", root, self.size)
        request = row_calls.gather(x, out, root, None, self.rank, self.size, name)
        return self._call(request, x, not name, None, [GATHER, root])

    def gatherv(
        self, x: Any, counts: Sequence[int] | None = None, root: int = 0, out: Any = None, name: str = ""
    ) -> Any:
        """Gathers as :meth:`gather` does, from arrays that may differ in their first dimension.

        Parameters
        ----------
        counts : Sequence[int] | None
            The first dimension of every rank's array, identical on all ranks; None on all ranks:
            the ranks exchange them first.
        """
        if counts is None and (exchange := self._exchange_rows(x, name or f"gatherv to rank {root}")) is not None:
            counts = exchange[2]
        return self._run_uncached(row_calls.gather(x, out, root, counts, self.rank, self.size, name))

    @cached(ALLTOALL, SCATTER)
    def scatter(self, x: Any, root: int = 0, out: Any = None, name: str = "") -> Any:
        """Returns part r of ``root``'s ``x``, divided equally along the first dimension, on rank r.

        Parameters
        ----------
        x
            On the root, an array; the number of ranks divides its first dimension. On the other
            ranks, an array of the same dtype and shape, which is not read, or None if ``out`` is
            given.
        out
            Array for the part; None: a new array.
        """
        root = arguments.root("scatter", root, self.size)
        request = row_calls.scatter(x, out, root, None, self.rank, self.size, name)
        given, cache_key = (out, [SCATTER, root, _core.INTO_OUT]) if x is None else (x, [SCATTER, root])
        return self._call(request, given, not name, None, cache_key)

    def scatterv(self, x: Any, counts: Sequence[int], root: int = 0, out: Any = None, name: str = "") -> Any:
        """Scatters as :meth:`scatter` does, in parts of ``counts`` rows.

        ``counts`` is identical on all ranks. On ranks other than the root, ``x`` may be any array
        with the root's dtype and dimensions after the first.
        """
        return self._run_uncached(row_calls.scatter(x, out, root, counts, self.rank, self.size, name))

    def allgatherv(
        self,
        x: Any,
        counts: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Any:
        """Performs :meth:`allgather` under MPI's name; ``counts`` are the ranks' rows."""
        return self.allgather(x, counts, out, algorithm, name)

    def alltoallv(
        self,
        x: Any,
        sendcounts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Any:
        """Sends ``sendcounts[q]`` rows of ``x`` to rank q; returns the received rows in rank order.

        Parameters
        ----------
        recvcounts : Sequence[int] | None
            Number of rows from each rank; None on all ranks: the ranks exchange them first.
        """
        if recvcounts is None:
            source = arrays.source(x)
            recvcounts = self._exchange_splits(source, splits_of(source, sendcounts, self.size), name)[2]
        how = request_fields(algorithm, name)
        return self._run_uncached(row_calls.alltoall(x, out, sendcounts, recvcounts, self.size, **how))

    def reduce_scatter(
        self,
        x: Any,
        counts: Sequence[int] | None = None,
        op: Any = Sum,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Any:
        """Returns ``counts[r]`` rows of the reduction on rank r, as ``MPI_Reduce_scatter`` does.

        Parameters
        ----------
        counts : Sequence[int] | None
            Identical on all ranks; they add up to the first dimension. None: even parts.
        """
        if counts is None:
            return self.reducescatter(x, op, out, algorithm, name=name)
        op, how = as_op(op), request_fields(algorithm, name)
        if isinstance(op, UserOp):
            return self._run_user_op(
                UserOpReduction("reduce_scatter", x, out, op, self.rank, self.size, None, how, rows=counts)
            )
        source = arrays.source(x)
        return self._run_uncached(row_calls.reducescatter(source, out, op, self.rank, self.size, rows=counts, **how))

    @cached(SCAN)
    def scan(self, x: Any, op: Any = Sum, out: Any = None, algorithm: str | None = None, name: str = "") -> Any:
        """Returns the reduction over the ranks up to and including this rank, in rank order.

        Parameters
        ----------
        op
            As for :meth:`allreduce`, except Average and Adasum.
        """
        return self._scan(SCAN, x, op, out, algorithm, name)

    @cached(EXSCAN)
    def exscan(self, x: Any, op: Any = Sum, out: Any = None, algorithm: str | None = None, name: str = "") -> Any:
        """Performs :meth:`scan` over the ranks before this rank only; rank 0 gets None."""
        return self._scan(EXSCAN, x, op, out, algorithm, name)

    def _scan(self, collective: int, x: Any, op: Any, out: Any, algorithm: str | None, name: str) -> Any:
        if type(op) is not Op:
            op = as_op(op)
        how = request_fields(algorithm, name)
        if isinstance(op, UserOp):
            return self._run_user_op(
                UserOpReduction(_core.COLLECTIVES[collective], x, out, op, self.rank, self.size, None, how)
            )
        request = calls.scan(collective, x, out, op, self.rank, **how)
        return self._call(request, x, algorithm is None and not name)
