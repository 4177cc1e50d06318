"""MPI's further collectives, with its names: gather, scatter, scan, and the vector forms (``gatherv`` and so on).

They are composed of the collectives of the core. Counts are numbers of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.rows import splits_of
from ringcomm._src.base.ops import Adasum, Average, Op, Sum, UserOp, as_op
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.calls.calls import ALLTOALL, EXSCAN, SCAN
from ringcomm._src.communicator.call_base import CACHE_MISS, request_fields
from ringcomm._src.communicator.ordered import OrderedCalls
from ringcomm._src.communicator.user_op_reduction import UserOpReduction
from ringcomm._src.core import _core

GATHER, SCATTER, SCATTER_INTO = range(3)  # first number of the cache key of an all-to-all; the second is the root


class VectorCollectives(OrderedCalls):
    """The vector collectives of :class:`ringcomm.Communicator`.

    Counts are numbers of rows: each rank's part along the first dimension, in rank order, without gaps. A gather takes
    a 0-dimensional array as one row.
    """

    def gather(self, x: Any, root: int = 0, out: Any = None, name: str = "") -> Any:
        """Returns every rank's ``x``, concatenated along the first dimension, on ``root``; None on the other ranks.

        The arrays have one dtype and shape. The ``out`` of the other ranks is not used.
        """
        here = root == self.rank
        if cacheable := self._can_cache and not name:
            result = self._channel.try_cached(ALLTOALL, x, out, 0, [GATHER, root], here)
            if result is not CACHE_MISS:
                return result
        request = row_calls.gather(x, out, root, None, self.rank, self.size, name)
        return self._call(request, x, cacheable, None, [GATHER, root])

    def gatherv(
        self, x: Any, counts: Sequence[int] | None = None, root: int = 0, out: Any = None, name: str = ""
    ) -> Any:
        """Gathers as :meth:`gather` does, from arrays that may differ in their first dimension.

        Args:
            counts: the first dimension of every rank's array, identical on all ranks; None on all ranks: the ranks
                exchange them first.
        """
        if counts is None and (exchange := self._exchange_rows(x, name or f"gatherv to rank {root}")) is not None:
            counts = exchange[2]
        return self._once(row_calls.gather(x, out, root, counts, self.rank, self.size, name))

    def scatter(self, x: Any, root: int = 0, out: Any = None, name: str = "") -> Any:
        """Returns part r of ``root``'s ``x``, divided equally along the first dimension, on rank r.

        Args:
            x: on the root, an array; the number of ranks divides its first dimension. On the other ranks, an array of
                the same dtype and shape, which is not read, or None if ``out`` is given.
            out: array for the part; None: a new array.
        """
        given, how = (out, [SCATTER_INTO, root]) if x is None else (x, [SCATTER, root])
        if cacheable := self._can_cache and not name and given is not None:
            result = self._channel.try_cached(ALLTOALL, given, out, 0, how)
            if result is not CACHE_MISS:
                return result
        request = row_calls.scatter(x, out, root, None, self.rank, self.size, name)
        return self._call(request, given, cacheable, None, how)

    def scatterv(self, x: Any, counts: Sequence[int], root: int = 0, out: Any = None, name: str = "") -> Any:
        """Scatters as :meth:`scatter` does, in parts of ``counts`` rows. ``counts`` is identical on all ranks.

        On ranks other than the root, ``x`` may be any array with the root's dtype and dimensions after the first.
        """
        return self._once(row_calls.scatter(x, out, root, counts, self.rank, self.size, name))

    def allgatherv(
        self,
        x: Any,
        counts: Sequence[int] | None = None,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Any:
        """Performs :meth:`allgather` under MPI's name; ``counts`` are the first dimensions of the ranks' arrays."""
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
        """Sends ``sendcounts[q]`` rows of ``x`` to rank q; returns the rows received, in rank order.

        Args:
            recvcounts: number of rows from each rank; None on all ranks: the ranks exchange them first.
        """
        if recvcounts is None:
            mine = arrays.source(x)
            recvcounts = self._exchange_splits(mine, splits_of(mine, sendcounts, self.size), name)[2]
        how = request_fields(algorithm, name)
        return self._once(row_calls.alltoall(x, out, sendcounts, recvcounts, self.size, **how))

    def reduce_scatter(
        self,
        x: Any,
        counts: Sequence[int] | None = None,
        op: Any = Sum,
        out: Any = None,
        algorithm: str | None = None,
        name: str = "",
    ) -> Any:
        """Performs :meth:`reducescatter` under MPI's name: rank r gets ``counts[r]`` rows of the reduction.

        Args:
            counts: identical on all ranks; they add up to the first dimension. None: even parts.
        """
        if counts is None:
            return self.reducescatter(x, op, out, algorithm, name=name)
        op, how = as_op(op), request_fields(algorithm, name)
        if isinstance(op, UserOp):
            return self._reduce_by_user_op(
                UserOpReduction("reduce_scatter", x, out, op, self.rank, self.size, None, how, rows=counts)
            )
        source = arrays.source(x)
        return self._once(row_calls.reducescatter(source, out, op, self.rank, self.size, rows=counts, **how))

    def scan(self, x: Any, op: Any = Sum, out: Any = None, algorithm: str | None = None, name: str = "") -> Any:
        """Returns the reduction of the ``x`` of the ranks up to and including this rank, in rank order.

        Args:
            op: as for :meth:`allreduce`, except Average and Adasum.
        """
        return self._scan(SCAN, x, op, out, algorithm, name)

    def exscan(self, x: Any, op: Any = Sum, out: Any = None, algorithm: str | None = None, name: str = "") -> Any:
        """Scans as :meth:`scan` does, over the ranks before this rank. Rank 0 gets None; its ``out`` is not used."""
        return self._scan(EXSCAN, x, op, out, algorithm, name)

    def _scan(self, collective: int, x: Any, op: Any, out: Any, algorithm: str | None, name: str) -> Any:
        if type(op) is not Op:
            op = as_op(op)
        cacheable = self._can_cache and algorithm is None and not name
        cacheable = cacheable and type(op) is Op and op is not Adasum and op is not Average
        if cacheable:
            here = collective == SCAN or self.rank > 0
            result = self._channel.try_cached(collective, x, out, 0, None, here, op)
            if result is not CACHE_MISS:
                return result
        how = request_fields(algorithm, name)
        if isinstance(op, UserOp):
            return self._reduce_by_user_op(
                UserOpReduction(_core.COLLECTIVES[collective], x, out, op, self.rank, self.size, None, how)
            )
        return self._call(calls.scan(collective, x, out, op, self.rank, **how), x, cacheable)
