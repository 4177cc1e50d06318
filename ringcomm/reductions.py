"""Named operations that compute: allreduce and reducescatter, defined once for arrays and every framework's tensors.

What all named operations have in common: :mod:`ringcomm.collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from ringcomm import arrays, named
from ringcomm._core import Request
from ringcomm.handles import Handle
from ringcomm.ops import Average, as_op, chosen_op
from ringcomm.process_sets import ProcessSet, global_process_set

T = TypeVar("T")
NAME = object()  # where the name of each tensor of a group belongs


def _takes_all(tensor: Any, op: Any = None) -> None:
    """The core says what it does not take."""


class Reductions(Generic[T]):
    """Those that compute: allreduce and reducescatter. :class:`ringcomm.collectives.Operations` has all.

    ``check(tensor, op)`` raises for what the binding does not take; op is None where nothing is computed.
    """

    def __init__(self, check: Callable[[Any, Any], None] = _takes_all) -> None:
        self._check = check

    # ---- requests ----------------------------------------------------------------------------------------------------
    def _reduction(
        self,
        tensor: T,
        in_place: bool,
        op: Any,
        name: str | None,
        pre: float,
        post: float,
        process_set: ProcessSet,
        algorithm: str | None,
        wire: Any = None,
    ) -> Request:
        self._check(tensor, op)
        pair = arrays.pair(tensor, tensor if in_place else None)
        return named.allreduce(process_set, *pair, op, name, pre, post, wire, algorithm)

    def _scatter(
        self,
        tensor: T,
        op: Any,
        name: str | None,
        pre: float,
        post: float,
        process_set: ProcessSet,
        algorithm: str | None,
        wire: Any = None,
    ) -> Request:
        self._check(tensor, op)
        return named.reducescatter(process_set, arrays.source(tensor), op, name, pre, post, wire, algorithm)

    def _group(
        self,
        make: Callable[..., Request],
        tensors: Iterable[T],
        name: str | None,
        process_set: ProcessSet,
        *how: Any,
    ) -> Handle[list[T]]:
        """`how`: arguments of `make` after the tensor, with NAME where its name belongs."""
        at = how.index(NAME)
        return named.grouped(
            list(tensors), name, process_set, lambda tensor, one: make(tensor, *how[:at], one, *how[at + 1 :])
        )

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
        """:meth:`allreduce` in the background."""
        how = chosen_op(op, average), name, prescale_factor, postscale_factor, process_set, algorithm
        return named.submit(process_set, self._reduction(tensor, False, *how))

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
        """:meth:`allreduce` in place and in the background."""
        if algorithm is None:
            handle = process_set.known.again(name, tensor, op, average, prescale_factor, postscale_factor)
            if handle is not None:
                return handle
        how = chosen_op(op, average), name, prescale_factor, postscale_factor, process_set, algorithm
        request = self._reduction(tensor, True, *how)
        if algorithm is not None:
            return named.submit(process_set, request)
        return named.submit_first(process_set, request, tensor, op, average, prescale_factor, postscale_factor, name)

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        compression: Any = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> T:
        """The reduction of every rank's ``tensor``, on every rank of ``process_set``.

        Args:
            tensor: of the same dtype and shape on every rank; any dtype with arithmetic (halves and bool included).
            average: deprecated; True: ``op=Average``, False: ``op=Sum``.
            name: pairs the operations of the ranks.
            compression: None, or a floating dtype ("float16", "bfloat16") that wider floating data travels as.
            op: ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum`` (of floating arrays).
                Averages of integers are rounded toward zero.
            prescale_factor, postscale_factor: multiply every rank's values before, and the result after.
            process_set: the ranks that take part.
            algorithm: what runs; None: chosen (see the module's text).

        Returns:
            A new array of the same dtype and shape.

        Raises:
            UnsupportedError: (a TypeError and ValueError) the dtype has no such reduction.
            ValueError: both ``op`` and ``average``, or an unknown op or algorithm.
        """
        how = chosen_op(op, average), name, prescale_factor, postscale_factor, process_set, algorithm, compression
        return named.submit(process_set, self._reduction(tensor, False, *how)).wait()

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
        """:meth:`allreduce` in place; returns ``tensor``."""
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
        """:meth:`grouped_allreduce` in the background."""
        how = chosen_op(op, average), NAME, prescale_factor, postscale_factor, process_set, algorithm
        return self._group(self._reduction, tensors, name, process_set, False, *how)

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
        """:meth:`grouped_allreduce` in place and in the background."""
        how = chosen_op(op, average), NAME, prescale_factor, postscale_factor, process_set, algorithm
        return self._group(self._reduction, tensors, name, process_set, True, *how)

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        compression: Any = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> list[T]:
        """:meth:`allreduce` of several arrays that run together, once all of them are there on every rank."""
        how = chosen_op(op, average), NAME, prescale_factor, postscale_factor, process_set, algorithm, compression
        return self._group(self._reduction, tensors, name, process_set, False, *how).wait()

    def grouped_allreduce_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> list[T]:
        """:meth:`grouped_allreduce` in place; returns the arrays."""
        how = average, name, op, prescale_factor, postscale_factor, process_set, algorithm
        return self.grouped_allreduce_async_(tensors, *how).wait()

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
        """:meth:`reducescatter` in the background."""
        how = as_op(op), name, prescale_factor, postscale_factor, process_set, algorithm
        return named.submit(process_set, self._scatter(tensor, *how))

    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        compression: Any = None,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> T:
        """The reduction of every rank's ``tensor``, cut along the first dimension: rank r of the set gets part r.

        The first ``tensor.shape[0] % size`` ranks get one row more than the others. Other arguments as for
        :meth:`allreduce`.
        """
        how = as_op(op), name, prescale_factor, postscale_factor, process_set, algorithm, compression
        return named.submit(process_set, self._scatter(tensor, *how)).wait()

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
        """:meth:`grouped_reducescatter` in the background."""
        how = as_op(op), NAME, prescale_factor, postscale_factor, process_set, algorithm
        return self._group(self._scatter, tensors, name, process_set, *how)

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        compression: Any = None,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> list[T]:
        """:meth:`reducescatter` of several arrays that run together."""
        how = as_op(op), NAME, prescale_factor, postscale_factor, process_set, algorithm, compression
        return self._group(self._scatter, tensors, name, process_set, *how).wait()
