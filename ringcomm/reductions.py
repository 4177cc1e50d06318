"""Named collectives that compute: allreduce and reducescatter.

What all named collectives have in common: :mod:`ringcomm.collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm import arrays, named
from ringcomm.handles import Handle
from ringcomm.ops import Average, as_op, chosen_op
from ringcomm.process_sets import ProcessSet, global_process_set


# ---- allreduce -------------------------------------------------------------------------------------------------------
def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """:func:`allreduce` in the background."""
    request = named.allreduce(
        process_set, *arrays.pair(tensor), chosen_op(op, average), name, prescale_factor, postscale_factor
    )
    return named.submit(process_set, request)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of every rank's ``tensor``, on every rank of ``process_set``.

    Args:
        tensor: array of the same dtype and shape on every rank; any dtype with arithmetic (halves and bool included).
        average: deprecated; True: ``op=Average``, False: ``op=Sum``.
        name: pairs the operations of the ranks.
        compression: None, or a floating dtype ("float16", "bfloat16") that wider floating data travels as.
        op: ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum`` (of floating arrays).
            Averages of integers are rounded toward zero.
        prescale_factor, postscale_factor: multiply every rank's values before, and the result after.

    Returns:
        A new array of the same dtype and shape.
    """
    request = named.allreduce(
        process_set,
        *arrays.pair(tensor),
        chosen_op(op, average),
        name,
        prescale_factor,
        postscale_factor,
        compression,
    )
    return named.submit(process_set, request).wait()


def allreduce_async_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """:func:`allreduce` in place and in the background."""
    handle = process_set.known.again(name, tensor, op, average, prescale_factor, postscale_factor)
    if handle is not None:
        return handle
    request = named.allreduce(
        process_set, *arrays.pair(tensor, tensor), chosen_op(op, average), name, prescale_factor, postscale_factor
    )
    return named.submit_first(process_set, request, tensor, op, average, prescale_factor, postscale_factor, name)


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """:func:`allreduce` in place; returns ``tensor``."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def _grouped_allreduce(
    in_place: bool,
    tensors: Sequence[Any],
    average: bool | None,
    name: str | None,
    op: Any,
    pre: float,
    post: float,
    process_set: ProcessSet,
    wire: Any = None,
) -> Handle[list[Any]]:
    op = chosen_op(op, average)
    return named.grouped(
        tensors,
        name,
        process_set,
        lambda tensor, one: named.allreduce(
            process_set, *arrays.pair(tensor, tensor if in_place else None), op, one, pre, post, wire
        ),
    )


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Any]]:
    """:func:`grouped_allreduce` in the background."""
    return _grouped_allreduce(False, tensors, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """:func:`allreduce` of several arrays that run together, once all of them are there on every rank."""
    return _grouped_allreduce(
        False, tensors, average, name, op, prescale_factor, postscale_factor, process_set, compression
    ).wait()


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Any]]:
    """:func:`grouped_allreduce` in place and in the background."""
    return _grouped_allreduce(True, tensors, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """:func:`grouped_allreduce` in place; returns the arrays."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


# ---- reducescatter ---------------------------------------------------------------------------------------------------
def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[Any]:
    """:func:`reducescatter` in the background."""
    request = named.reducescatter(
        process_set, arrays.source(tensor), as_op(op), name, prescale_factor, postscale_factor
    )
    return named.submit(process_set, request)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = None,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """The reduction of every rank's ``tensor``, cut along the first dimension: rank r of the set gets part r.

    The first ``tensor.shape[0] % size`` ranks get one row more than the others. Other arguments as for
    :func:`allreduce`.
    """
    request = named.reducescatter(
        process_set, arrays.source(tensor), as_op(op), name, prescale_factor, postscale_factor, compression
    )
    return named.submit(process_set, request).wait()


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[Any]]:
    """:func:`grouped_reducescatter` in the background."""
    op = as_op(op)
    return named.grouped(
        tensors,
        name,
        process_set,
        lambda tensor, one: named.reducescatter(
            process_set, arrays.source(tensor), op, one, prescale_factor, postscale_factor
        ),
    )


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = None,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """:func:`reducescatter` of several arrays that run together."""
    op = as_op(op)
    return named.grouped(
        tensors,
        name,
        process_set,
        lambda tensor, one: named.reducescatter(
            process_set, arrays.source(tensor), op, one, prescale_factor, postscale_factor, compression
        ),
    ).wait()
