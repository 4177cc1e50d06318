"""The named reductions, allreduce and reducescatter, defined once for arrays and for every framework's tensors.

:mod:`ringcomm._src.named.collectives` documents what all named operations have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ringcomm._src.arrays import arrays, buffers
from ringcomm._src.arrays.forms import blocking_form
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base.ops import Average, chosen_op, core_op
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.compression.compression import NoneCompressor
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request
from ringcomm._src.named import named
from ringcomm._src.named.process_sets import ProcessSet, global_process_set

T = TypeVar("T")


class Reduction(NamedTuple):
    """Parameters of a reduction, and the process set that performs it."""

    op: Any
    prescale: float
    postscale: float
    process_set: ProcessSet
    algorithm: str | None = None
    wire: Any = None  # wire format
    feedback: _core.Feedback | None = None  # residual of one array

    def allreduce(self, source: buffers.Buffer, target: buffers.Buffer) -> Request:
        """Builds an allreduce; `target` may be `source`."""
        return calls.allreduce(
            source, target, self.op, self.wire, pre=self.prescale, post=self.postscale, feedback=self.feedback
        )

    def reducescatter(self, source: buffers.Buffer) -> Request:
        """Builds a reducescatter: rank r of the set gets part r along the first dimension."""
        me, size = self.process_set.require_rank(), self.process_set.size()
        return row_calls.reducescatter(
            source, None, self.op, me, size, self.wire, pre=self.prescale, post=self.postscale
        )

    def submit(self, request: Request, name: str | None) -> Handle[Any]:
        return named.submit(self.process_set, request, name, self.algorithm)

    def submit_group(self, requests: Sequence[Request], name: str | Sequence[str] | None) -> Handle[list[Any]]:
        return named.submit_group(self.process_set, requests, name, self.algorithm)


def _takes_all(tensor: Any, op: Any = None) -> None:
    """Accepts every tensor: the request itself raises for unsupported dtypes."""


class Reductions(Generic[T]):
    """The named reductions; :class:`ringcomm._src.named.collectives.Operations` adds the other named operations.

    ``check(tensor, op)`` raises for tensors that the binding does not take; op is None if nothing is reduced.
    """

    def __init__(self, check: Callable[[Any, Any], None] = _takes_all) -> None:
        self._check = check

    # ---- requests ----------------------------------------------------------------------------------------------------
    def allreduce_request(self, how: Reduction, tensor: T, in_place: bool = False) -> Request:
        self._check(tensor, how.op)
        return how.allreduce(*arrays.pair(tensor, tensor if in_place else None))

    def reducescatter_request(self, how: Reduction, tensor: T) -> Request:
        self._check(tensor, how.op)
        return how.reducescatter(arrays.source(tensor))

    def _group(
        self, how: Reduction, name: str | None, make: Callable[..., Request], tensors: Sequence[T], *more: Any
    ) -> Handle[list[T]]:
        how.process_set.set_id()  # raises before requests are built
        return how.submit_group([make(how, tensor, *more) for tensor in tensors], name)

    # ---- blocking forms with new results: bindings with gradients override them --------------------------------------
    def run_allreduce(self, grouped: bool, name: str | None, how: Reduction, *tensors: T) -> Any:
        return self._run(grouped, name, how, self.allreduce_request, tensors)

    def run_reducescatter(self, grouped: bool, name: str | None, how: Reduction, *tensors: T) -> Any:
        return self._run(grouped, name, how, self.reducescatter_request, tensors)

    def _run(
        self, grouped: bool, name: str | None, how: Reduction, make: Callable[..., Request], tensors: Sequence[T]
    ) -> Any:
        if grouped:
            return tuple(self._group(how, name, make, tensors).wait())
        return how.submit(make(how, tensors[0]), name).wait()

    def _compressed(
        self,
        run: Callable[..., Any],
        grouped: bool,
        tensors: Sequence[T],
        name: str | None,
        compression: Any,
        how: Reduction,
    ) -> Any:
        result = run(grouped, name, how._replace(wire=compression), *tensors)
        return list(result) if grouped else result

    # ---- allreduce ---------------------------------------------------------------------------------------------------
    def allreduce_async(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> Handle[T]:
        """Starts :meth:`allreduce` in the background."""
        how = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        return how.submit(self.allreduce_request(how, tensor), name)

    def allreduce_async_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> Handle[T]:
        """Starts :meth:`allreduce` in place and in the background."""
        if algorithm is None:
            handle = process_set.known.again(name, tensor, op, average, prescale_factor, postscale_factor)
            if handle is not None:
                return handle
        how = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        request = self.allreduce_request(how, tensor, True)
        if algorithm is not None or average is not None:
            return how.submit(request, name)
        return named.submit_first(process_set, request, name, tensor, op, prescale_factor, postscale_factor)

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> T:
        """Returns the reduction of every rank's ``tensor``, on every rank of ``process_set``.

        Args:
            tensor: array of the same dtype and shape on every rank; any dtype with arithmetic (float16 and bool too).
            average: deprecated; True: ``op=Average``, False: ``op=Sum``.
            name: matches the operations of the ranks.
            compression: encoding of wider floating data between hosts: a compressor of the binding
                (``Compression.fp16``, or a custom compressor), or for arrays a floating dtype ("float16", "bfloat16").
            op: ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum`` (for floating arrays;
                each array is one vector, also in a group). Averages of integers are rounded toward zero.
            prescale_factor, postscale_factor: factors of every rank's values before, and of the result after, the
                reduction.
            process_set: the ranks that take part.
            algorithm: name of the algorithm; None: chosen (see the module's text).

        Returns:
            A new array of the same dtype and shape.

        Raises:
            UnsupportedError: (a TypeError and ValueError) the reduction does not exist for the dtype.
            ValueError: both ``op`` and ``average``, or an unknown op or algorithm.
        """
        how = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_allreduce, False, [tensor], name, compression, how)

    def allreduce_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> T:
        """Performs :meth:`allreduce` in place; returns ``tensor``."""
        # Written without `blocking_form`, which would add 0.1 us to every call.
        how = average, name, op, prescale_factor, postscale_factor, process_set, algorithm
        return self.allreduce_async_(tensor, *how).wait()

    def grouped_allreduce_async(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> Handle[list[T]]:
        """Starts :meth:`grouped_allreduce` in the background."""
        how = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        return self._group(how, name, self.allreduce_request, tensors)

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> Handle[list[T]]:
        """Starts :meth:`grouped_allreduce` in place and in the background."""
        how = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        return self._group(how, name, self.allreduce_request, tensors, True)

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> list[T]:
        """Performs :meth:`allreduce` of several arrays as one group, once every rank has submitted all of them."""
        how = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_allreduce, True, tensors, name, compression, how)

    grouped_allreduce_ = blocking_form(
        grouped_allreduce_async_, ":meth:`grouped_allreduce` in place; returns the arrays.", "list[T]"
    )

    # ---- reducescatter -----------------------------------------------------------------------------------------------
    def reducescatter_async(
        self,
        tensor: T,
        name: str | None = None,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> Handle[T]:
        """Starts :meth:`reducescatter` in the background."""
        how = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm)
        return how.submit(self.reducescatter_request(how, tensor), name)

    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> T:
        """Returns part r of the reduction of every rank's ``tensor`` on rank r of the set.

        The reduction is divided along the first dimension; the first ``tensor.shape[0] % size`` ranks get one more row.
        Arguments are those of :meth:`allreduce`.
        """
        how = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_reducescatter, False, [tensor], name, compression, how)

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> Handle[list[T]]:
        """Starts :meth:`grouped_reducescatter` in the background."""
        how = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm)
        return self._group(how, name, self.reducescatter_request, tensors)

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> list[T]:
        """Performs :meth:`reducescatter` of several arrays as one group."""
        how = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_reducescatter, True, tensors, name, compression, how)
