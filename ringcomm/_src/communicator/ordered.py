"""Blocking collectives with MPI's semantics: all ranks make the same calls in the same order.

They run on the caller's thread. Calls that the core has cached skip the construction of a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays import arrays, buffers
from ringcomm._src.arrays.rows import at_least_1d, splits_of
from ringcomm._src.base import arguments
from ringcomm._src.base.ops import Op, Sum, UserOp, as_op, wire_number
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.calls.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, REDUCE, REDUCESCATTER
from ringcomm._src.communicator.call_base import Calls, cached, request_fields
from ringcomm._src.communicator.user_op_reduction import UserOpReduction
from ringcomm._src.compression.compression import Feedback
from ringcomm._src.core._core import Request

Exchange = tuple[Request, Sequence[int], Sequence[int]]  # request, numbers sent, numbers received


class OrderedCalls(Calls):
    """The blocking collectives of :class:`ringcomm.Communicator`.

    The first call of its kind builds a request and adds it to the call cache. The decorator
    `cached` runs later calls of this kind without the method's code.
    """

    @cached(ALLREDUCE)
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

        Parameters
        ----------
        x
            Array of the same dtype and shape on every rank.
        op
            ``ringcomm.Sum`` or another op, its name, or mpi4py's op; or a user-defined op.
            :class:`ringcomm.Op` lists the ops and their dtypes.
        out
            Array for the result; may be ``x`` (in place). None: a new array.
        algorithm : str | None
            A built-in ("ring", "butterfly", ...), "two_level:ring" and so on (a schedule between
            hosts, shared memory within them), "shared", or a registered algorithm; None: the one
            that the cost model chooses.
        prescale_factor, postscale_factor : float
            Factors that multiply the values before, and the result after, the reduction.
        wire
            Wire format of wider floating elements between hosts: "float16", "bfloat16" or "float32"
            or their dtypes; for sums and averages also a format of :class:`ringcomm.Compression` or
            its name. Nothing is encoded within a host that shares memory, or as inline data.
        name : str
            Name of the call: compared between ranks, and used in error messages.
        feedback : Feedback | None
            Error feedback for a lossy ``wire``: the call adds the previous residual to ``x``, and
            stores the new one. A Feedback has x's number of elements.

        Returns
        -------
        array
            ``out``, or a new array of x's kind, shape and dtype.

        Raises
        ------
        TypeError
            The op does not support the dtype.
        ValueError
            The op or algorithm is unknown, the op takes no factors, or ``out`` is unsuitable.
        """
        if type(op) is not Op:
            op = as_op(op)
        cache_key = None if wire is None else [wire_number(wire)]
        cacheable = algorithm is None and feedback is None and not name
        fields = request_fields(algorithm, name, prescale_factor, postscale_factor)
        if isinstance(op, UserOp):
            return self._run_user_op(UserOpReduction("allreduce", x, out, op, self.rank, self.size, wire, fields))
        if feedback is not None:
            fields["feedback"] = feedback._core
        request = calls.allreduce(*arrays.pair(x, out), op, wire, **fields)
        return self._call(request, x, cacheable, cache_key=cache_key)

    @cached(REDUCE)
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
        """Reduces as :meth:`allreduce` does; ``root`` gets the result, the other ranks get None."""
        if type(op) is not Op:
            op = as_op(op)
        cache_key = None if wire is None else [wire_number(wire)]
        cacheable = algorithm is None and not name
        fields = request_fields(algorithm, name, prescale_factor, postscale_factor)
        if isinstance(op, UserOp):
            return self._run_user_op(UserOpReduction("reduce", x, out, op, self.rank, self.size, wire, fields, root))
        root = arguments.root("reduce", root, self.size)
        request = calls.reduce(x, out, root, op, self.rank, wire, **fields)
        return self._call(request, x, cacheable, cache_key=cache_key)

    @cached(BROADCAST)
    def broadcast(self, x: Any, root: int = 0, out: Any = None, algorithm: str | None = None, name: str = "") -> Any:
        """Returns the values of ``root``'s ``x`` on every rank.

        Every rank gives an array of the same dtype and shape. ``out=x``: in place.
        """
        root = arguments.root("broadcast", root, self.size)
        request = calls.broadcast(*arrays.pair(x, out), root, **request_fields(algorithm, name))
        return self._call(request, x, algorithm is None and not name)

    @cached(ALLGATHER)
    def allgather(
        self, x: Any, rows: Sequence[int] | None = None, out: Any = None, algorithm: str | None = None, name: str = ""
    ) -> Any:
        """Returns every rank's ``x``, concatenated along the first dimension, on every rank.

        Parameters
        ----------
        x
            Array; only first dimensions may differ between ranks. A 0-dimensional array is a row.
        rows : Sequence[int] | None
            The first dimension of every rank's array; None: the ranks exchange these numbers first.
        """
        exchange: Exchange | None = None
        received: Sequence[int] | None = self._take_exchanged() if rows is None else rows
        if received is None and (exchange := self._exchange_rows(x, name)) is not None:
            received = exchange[2]
        cacheable = algorithm is None and not name and (rows is not None or exchange is not None)
        request = row_calls.allgather(x, out, received, self.rank, self.size, **request_fields(algorithm, name))
        return self._call(request, x, cacheable, exchange, None if rows is None else [int(n) for n in rows])

    @cached(REDUCESCATTER)
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
        """Returns part r of the reduction, divided along the first dimension, on rank r.

        The first ``x.shape[0] % size`` ranks get one more row. The arguments are those of
        :meth:`allreduce`.
        """
        if type(op) is not Op:
            op = as_op(op)
        cache_key = None if wire is None else [wire_number(wire)]
        cacheable = algorithm is None and not name
        fields = request_fields(algorithm, name, prescale_factor, postscale_factor)
        if isinstance(op, UserOp):
            return self._run_user_op(UserOpReduction("reducescatter", x, out, op, self.rank, self.size, wire, fields))
        request = row_calls.reducescatter(arrays.source(x), out, op, self.rank, self.size, wire, **fields)
        return self._call(request, x, cacheable, cache_key=cache_key)

    @cached(ALLTOALL)
    def alltoall(
        self, x: Any, splits: Any = None, out: Any = None, algorithm: str | None = None, name: str = ""
    ) -> Any:
        """Sends part q of ``x`` (along the first dimension) to rank q; returns the parts received.

        Parameters
        ----------
        splits
            Number of rows to send to each rank; they add up to ``x.shape[0]``; None: equal parts.

        Returns
        -------
        array or tuple
            The received rows in rank order; with ``splits``, (rows, int32 array of their numbers).
        """
        received: Sequence[int] | None = self._take_exchanged()
        source = arrays.source(x)
        sent = splits_of(source, splits, self.size)
        exchange: Exchange | None = None
        if received is None:
            exchange = self._exchange_splits(source, sent, name)
            received = exchange[2]
        cacheable = splits is None and algorithm is None and not name and exchange is not None
        request = row_calls.alltoall(x, out, sent, received, self.size, **request_fields(algorithm, name))
        result = self._call(request, x, cacheable, exchange)
        return result if splits is None else (result, np.array(received, np.int32))

    @cached(BARRIER)
    def barrier(self, algorithm: str | None = None, name: str = "") -> None:
        """Blocks until every rank has called it."""
        request = calls.barrier(**request_fields(algorithm, name))
        return self._call(request, None, algorithm is None and not name)

    def _call(
        self,
        request: Request,
        x: Any,
        cacheable: bool,
        exchange: Exchange | None = None,
        cache_key: Sequence[int] | None = None,
    ) -> Any:
        """Runs a request and returns its result. If `cacheable`, adds it to the call cache."""
        if cacheable and self._call_cache is not None:
            output = request.finish if isinstance(request.finish, calls.WriteBack) else None
            shape, has_result = (None, True) if output is None else (output.target.shape, output.has_result)
            self._call_cache.remember(x, shape, has_result, request, exchange, cache_key)
        self._run(request)
        return request.finish()

    def _run_user_op(self, reduction: UserOpReduction) -> Any:
        return reduction.run(self._run_uncached)

    def _run_uncached(self, request: Request) -> Any:
        return self._call(request, None, False)

    def _take_exchanged(self) -> list[int] | None:
        """Returns the numbers that the cached call has exchanged, if it did not run with them."""
        numbers, self._exchanged = self._exchanged, None
        return numbers

    def _exchange_rows(self, x: Any, name: str) -> Exchange | None:
        """Exchanges the ranks' first dimensions; compares the other dimensions and the dtype."""
        source = at_least_1d(arrays.source(x))
        sent, received, signature = self._number_buffers(source, [source.shape[0]])
        ones = [1] * self.size
        request = row_calls.allgather(sent, received, ones, self.rank, self.size, signature, name=name)
        return self._run_exchange(request, sent, received)

    def _exchange_splits(self, source: buffers.Buffer, splits: Sequence[int], name: str) -> Exchange:
        sent, received, signature = self._number_buffers(source, splits)
        ones = [1] * self.size
        request = row_calls.alltoall(sent, received, ones, ones, self.size, signature, name=name, even=True)
        return self._run_exchange(request, sent, received)

    def _number_buffers(self, source: buffers.Buffer, sent: Sequence[int]) -> tuple[Any, Any, buffers.Signature]:
        signature = buffers.signature(source.shape[1:], f"rows of {source.label}")
        return np.array(sent, np.int64), np.empty(self.size, np.int64), signature

    def _run_exchange(self, request: Request, sent: Any, received: Any) -> Exchange:
        self._run(request)
        return request, sent.tolist(), received.tolist()
