"""Blocking collectives with MPI's semantics: all ranks make the same calls in the same order.

They run on the caller's thread. Calls that the core has cached skip the construction of a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays import arrays, buffers
from ringcomm._src.arrays.rows import splits_of, with_rows
from ringcomm._src.base import arguments
from ringcomm._src.base.ops import Adasum, Op, Sum, UserOp, as_op, wire_number
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.calls.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, REDUCE, REDUCESCATTER
from ringcomm._src.communicator.call_base import CACHE_MISS, Calls, request_fields
from ringcomm._src.communicator.user_op_reduction import UserOpReduction
from ringcomm._src.compression.compression import Feedback
from ringcomm._src.core._core import Request

Exchange = tuple[Request, Sequence[int], Sequence[int]]  # request, numbers sent, numbers received


class OrderedCalls(Calls):
    """The blocking collectives of :class:`ringcomm.Communicator`.

    To save microseconds, a call on a NumPy array without a named algorithm first looks in the call cache
    (`_core.Channel.try_cached`). The first call of its kind builds a request, and is added to the cache.
    """

    def allreduce(
        self,
        x: Any,
        op: Any = Sum,
        out: Any = None,
        algorithm: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        wire: Any = None,
        name: str = "",
        feedback: Feedback | None = None,
    ) -> Any:
        """Returns the reduction of every rank's ``x``, on every rank.

        Args:
            x: array of the same dtype and shape on every rank.
            op: ``ringcomm.Sum``, ``Average``, ``Min``, ``Max``, ``Product``, ``BAND``, ``MINLOC``, ...; its name or
                mpi4py's op; or a user op (:meth:`ringcomm.Op.create`). :class:`ringcomm.Op` lists the dtypes of each
                op.
            out: array for the result; may be ``x`` (in place). None: a new array.
            algorithm: a built-in ("ring", "butterfly", ...), "two_level:ring" and so on (a schedule between hosts,
                shared memory inside them), "shared", or a registered algorithm; None: chosen by the cost model.
            prescale_factor, postscale_factor: factors of every rank's values before, and of the result after, the
                reduction.
            wire: wire format of wider floating elements between hosts: "float16", "bfloat16" or "float32", or such a
                dtype; for sums and averages also "int8", "int4", "onebit", "ternary", "topk", "threshold",
                or one of these with parameters (``ringcomm.Compression.topk(0.001)``). Nothing is encoded inside a
                host that shares memory, because memory is faster than encoding, nor in calls with inline data.
            name: compared between ranks and used in messages.
            feedback: error feedback for a lossy ``wire``: adds the residual of the calls before, and stores the new
                residual. It has x's number of elements.

        Returns:
            ``out``, or a new array of x's shape and dtype.

        Raises:
            TypeError: the op does not exist for the dtype.
            ValueError: an unknown op or algorithm, factors for an op that takes none, or an ``out`` that does not fit.
        """
        if type(op) is not Op:
            op = as_op(op)
        cache_key = None if wire is None else [wire_number(wire)]
        cacheable = self._can_cache and algorithm is None and feedback is None and not name
        cacheable = cacheable and type(op) is Op and op is not Adasum
        if cacheable:
            result = self._channel.try_cached(
                ALLREDUCE, x, out, 0, cache_key, True, op, prescale_factor, postscale_factor
            )
            if result is not CACHE_MISS:
                return result
        how = request_fields(algorithm, name, prescale_factor, postscale_factor)
        if isinstance(op, UserOp):
            return self._reduce_by_user_op(UserOpReduction("allreduce", x, out, op, self.rank, self.size, wire, how))
        if feedback is not None:
            how["feedback"] = feedback._core
        request = calls.allreduce(*arrays.pair(x, out), op, wire, **how)
        return self._call(request, x, cacheable, cache_key=cache_key)

    def reduce(
        self,
        x: Any,
        root: int = 0,
        op: Any = Sum,
        out: Any = None,
        algorithm: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        wire: Any = None,
        name: str = "",
    ) -> Any:
        """Reduces as :meth:`allreduce` does, and returns the result on ``root`` only.

        The other ranks get None; their ``out`` is not used.
        """
        if type(op) is not Op:
            op = as_op(op)
        cache_key = None if wire is None else [wire_number(wire)]
        cacheable = self._can_cache and algorithm is None and not name
        cacheable = cacheable and type(op) is Op and op is not Adasum
        if cacheable:
            result = self._channel.try_cached(
                REDUCE, x, out, root, cache_key, root == self.rank, op, prescale_factor, postscale_factor
            )
            if result is not CACHE_MISS:
                return result
        how = request_fields(algorithm, name, prescale_factor, postscale_factor)
        if isinstance(op, UserOp):
            return self._reduce_by_user_op(UserOpReduction("reduce", x, out, op, self.rank, self.size, wire, how, root))
        root = arguments.root("reduce", root, self.size)
        request = calls.reduce(x, out, root, op, self.rank, wire, **how)
        return self._call(request, x, cacheable, cache_key=cache_key)

    def broadcast(self, x: Any, root: int = 0, out: Any = None, algorithm: str | None = None, name: str = "") -> Any:
        """Returns the values of ``root``'s ``x`` on every rank.

        Every rank gives an array of the same dtype and shape; ``out=x``: in place.
        """
        cacheable = self._can_cache and algorithm is None and not name
        if cacheable:
            result = self._channel.try_cached(BROADCAST, x, out, root)
            if result is not CACHE_MISS:
                return result
        root = arguments.root("broadcast", root, self.size)
        request = calls.broadcast(*arrays.pair(x, out), root, **request_fields(algorithm, name))
        return self._call(request, x, cacheable)

    def allgather(
        self, x: Any, rows: Sequence[int] | None = None, out: Any = None, algorithm: str | None = None, name: str = ""
    ) -> Any:
        """Returns every rank's ``x``, concatenated along the first dimension, on every rank.

        Args:
            x: arrays may differ in their first dimension only; a 0-dimensional array counts as one row.
            rows: the first dimension of every rank's array, if known; None: the ranks exchange them first.
        """
        cacheable = self._can_cache and algorithm is None and not name
        exchange: Exchange | None = None
        received: Sequence[int] | None = rows
        if cacheable:
            result = self._channel.try_cached(ALLGATHER, x, out, 0, rows)
            if type(result) is list:  # the core has exchanged the rows, and they differ from the cached ones
                received, cacheable = result, False
            elif result is not CACHE_MISS:
                return result
        if received is None and (exchange := self._exchange_rows(x, name)) is not None:
            received = exchange[2]
        request = row_calls.allgather(x, out, received, self.rank, self.size, **request_fields(algorithm, name))
        return self._call(request, x, cacheable, exchange, None if rows is None else [int(n) for n in rows])

    def reducescatter(
        self,
        x: Any,
        op: Any = Sum,
        out: Any = None,
        algorithm: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        wire: Any = None,
        name: str = "",
    ) -> Any:
        """Returns part r of the reduction of every rank's ``x``, divided along the first dimension, on rank r.

        The first ``x.shape[0] % size`` ranks get one more row. Arguments are those of :meth:`allreduce`.
        """
        if type(op) is not Op:
            op = as_op(op)
        cache_key = None if wire is None else [wire_number(wire)]
        cacheable = self._can_cache and algorithm is None and not name
        cacheable = cacheable and type(op) is Op and op is not Adasum
        if cacheable:
            result = self._channel.try_cached(
                REDUCESCATTER, x, out, 0, cache_key, True, op, prescale_factor, postscale_factor
            )
            if result is not CACHE_MISS:
                return result
        how = request_fields(algorithm, name, prescale_factor, postscale_factor)
        if isinstance(op, UserOp):
            return self._reduce_by_user_op(
                UserOpReduction("reducescatter", x, out, op, self.rank, self.size, wire, how)
            )
        request = row_calls.reducescatter(arrays.source(x), out, op, self.rank, self.size, wire, **how)
        return self._call(request, x, cacheable, cache_key=cache_key)

    def alltoall(
        self, x: Any, splits: Any = None, out: Any = None, algorithm: str | None = None, name: str = ""
    ) -> Any:
        """Sends part q of ``x`` (along the first dimension) to rank q; returns the parts received, in rank order.

        Args:
            splits: number of rows to send to each rank; they add up to ``x.shape[0]``; None: equal parts.

        Returns:
            The array received; with ``splits``, the pair (array, rows from each rank as an int32 array).
        """
        cacheable = self._can_cache and splits is None and algorithm is None and not name
        exchange: Exchange | None = None
        received: Sequence[int] | None = None
        if cacheable:
            result = self._channel.try_cached(ALLTOALL, x, out)
            if type(result) is list:
                received, cacheable = result, False
            elif result is not CACHE_MISS:
                return result
        mine = arrays.source(x)
        sent = splits_of(mine, splits, self.size)
        if received is None:
            exchange = self._exchange_splits(mine, sent, name)
            received = exchange[2]
        request = row_calls.alltoall(x, out, sent, received, self.size, **request_fields(algorithm, name))
        result = self._call(request, x, cacheable, exchange)
        return result if splits is None else (result, np.array(received, np.int32))

    def barrier(self, algorithm: str | None = None, name: str = "") -> None:
        """Blocks until every rank has called it."""
        cacheable = self._can_cache and algorithm is None and not name
        if cacheable and self._channel.try_cached(BARRIER) is not CACHE_MISS:
            return None
        return self._call(calls.barrier(**request_fields(algorithm, name)), None, cacheable)

    def _call(
        self,
        request: Request,
        x: Any,
        cacheable: bool,
        exchange: Exchange | None = None,
        cache_key: Sequence[int] | None = None,
    ) -> Any:
        """Runs a request and returns its result.

        `cacheable`: add it to the call cache; later calls with an equal `cache_key` may use it.
        """
        if cacheable:
            shape = request.finish.target.shape if isinstance(request.finish, calls.Written) else None
            self._channel.remember(x, shape, request, exchange, cache_key)
        self._run(request)
        return request.finish()

    def _reduce_by_user_op(self, reduction: UserOpReduction) -> Any:
        return reduction.run(self._once)

    def _once(self, request: Request) -> Any:
        return self._call(request, None, False)

    def _exchange_rows(self, x: Any, name: str) -> Exchange | None:
        """Exchanges every rank's first dimension. It also compares the other dimensions, before large data moves."""
        mine = with_rows(arrays.source(x))
        sent, received, sign = self._numbers(mine, [mine.shape[0]])
        ones = [1] * self.size
        request = row_calls.allgather(sent, received, ones, self.rank, self.size, sign, name=name)
        return self._exchange(request, sent, received)

    def _exchange_splits(self, mine: buffers.Buffer, splits: Sequence[int], name: str) -> Exchange:
        sent, received, sign = self._numbers(mine, splits)
        ones = [1] * self.size
        request = row_calls.alltoall(sent, received, ones, ones, self.size, sign, name=name, even=True)
        return self._exchange(request, sent, received)

    def _numbers(self, mine: buffers.Buffer, sent: Sequence[int]) -> tuple[Any, Any, buffers.Signature]:
        sign = buffers.signature(mine.shape[1:], f"rows of {mine.label}")
        return np.array(sent, np.int64), np.empty(self.size, np.int64), sign

    def _exchange(self, request: Request, sent: Any, received: Any) -> Exchange:
        self._run(request)
        return request, sent.tolist(), received.tolist()
