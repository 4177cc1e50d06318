"""Ordered collectives, from arrays to the arguments of the core: one function each, for the blocking and the
non-blocking forms.

No function here communicates. `rank` and `size` are the communicator's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcomm import _core, arrays
from ringcomm.arrays import Buffer
from ringcomm.errors import UnsupportedError
from ringcomm.ops import FLOATING, Adasum, Op, Sum, as_op, wire_index

ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, ALLTOALL, BARRIER = (
    _core.COLLECTIVES.index(name)
    for name in ("allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "barrier")
)


class Call(NamedTuple):
    """`arguments` of _core.Channel.run, and what makes the result (and keeps the buffers alive)."""

    arguments: tuple[Any, ...]
    finish: Callable[[], Any]

    @property
    def shape(self) -> arrays.Shape | None:
        """Of the result; None if there is none."""
        return self.finish.target.shape if isinstance(self.finish, _Finish) else None


def _arguments(
    collective: int,
    source: Buffer,
    target: Buffer,
    sign: arrays.Signature,
    *,
    op: int = int(Sum),
    root: int = 0,
    algorithm: str = "",
    count: int | None = None,
    counts: Sequence[int] | None = None,
    receive_counts: Sequence[int] | None = None,
    pre: float = 1.0,
    post: float = 1.0,
    wire: int = -1,
    name: str = "",
) -> tuple[Any, ...]:
    return (
        collective,
        source.dtype,
        op,
        root,
        algorithm,
        source.address,
        target.address,
        source.count if count is None else count,
        counts,
        receive_counts,
        pre,
        post,
        1,
        wire,
        name,
        sign.hash,
        sign.text,
    )


def require_reducible(collective: str, buffer: Buffer, op: Op) -> None:
    if op == Adasum and collective != "allreduce":
        raise UnsupportedError(f"{collective}: Adasum is for allreduce only")
    if op == Adasum and buffer.reducible and buffer.dtype not in FLOATING:
        raise UnsupportedError(f"{collective}: there is no Adasum of {buffer.label}; it is for floating dtypes")
    if not buffer.reducible:
        raise UnsupportedError(
            f"{collective}: there is no {op.name} of {buffer.label}; arithmetic exists for {', '.join(_core.DTYPES)}"
        )


def require_rows(collective: str, buffer: Buffer) -> None:
    if not buffer.shape:
        raise ValueError(f"{collective} works along the first dimension; the array has none")


def row_of(buffer: Buffer) -> int:
    """Core elements of one row."""
    return math.prod(buffer.shape[1:]) * buffer.width


def part(rows: int, size: int, rank: int) -> int:
    """Rows of `rank` when `rows` are cut into `size` parts, the first ones longer by one."""
    return rows // size + (rank < rows % size)


def with_rows(buffer: Buffer) -> Buffer:
    """A 0-dimensional buffer as one row."""
    return buffer if buffer.shape else buffer._replace(shape=(1,))


def allreduce(x: Any, op: Any, out: Any, algorithm: str, pre: float, post: float, wire: Any, name: str) -> Call:
    op = as_op(op)
    if out is x and out is not None:
        target = source = arrays.target(x)
    else:
        source = arrays.source(x)
        target = source.empty() if out is None else arrays.target(out, source)
    require_reducible("allreduce", source, op)
    sign = arrays.signature_of(source)
    arguments = _arguments(
        ALLREDUCE,
        source,
        target,
        sign,
        op=int(op),
        algorithm=algorithm,
        pre=pre,
        post=post,
        wire=wire_index(wire, source.dtype),
        name=name,
    )
    return Call(arguments, _Finish(source, target))


class _Finish:
    """Writes the result back if need be, and gives the caller's array."""

    def __init__(self, source: Buffer, target: Buffer, here: bool = True) -> None:
        self.source, self.target, self.here = source, target, here

    def __call__(self) -> Any:
        return self.target.write_back() if self.here else None


def reduce(
    x: Any, root: int, op: Any, out: Any, algorithm: str, pre: float, post: float, wire: Any, name: str, rank: int
) -> Call:
    op = as_op(op)
    here = rank == root
    if here and out is x and out is not None:
        target = source = arrays.target(x)
    else:
        source = arrays.source(x)
        target = source if not here else source.empty() if out is None else arrays.target(out, source)
    require_reducible("reduce", source, op)
    arguments = _arguments(
        REDUCE,
        source,
        target,
        arrays.signature_of(source),
        op=int(op),
        root=root,
        algorithm=algorithm,
        pre=pre,
        post=post,
        wire=wire_index(wire, source.dtype),
        name=name,
    )
    return Call(arguments, _Finish(source, target, here))


def broadcast(x: Any, root: int, out: Any, algorithm: str, name: str) -> Call:
    if out is x and out is not None:
        target = source = arrays.target(x)
    else:
        source = arrays.source(x)
        target = source.empty() if out is None else arrays.target(out, source)
    return Call(
        _arguments(BROADCAST, source, target, arrays.signature_of(source), root=root, algorithm=algorithm, name=name),
        _Finish(source, target),
    )


def allgather(x: Any, rows: Sequence[int] | None, out: Any, algorithm: str, name: str, rank: int, size: int) -> Call:
    """`rows`: the first dimension on every rank; None: the same everywhere, which is then compared too."""
    source = with_rows(arrays.source(x))
    mine = source.shape[0]
    rows = [mine] * size if rows is None else [int(n) for n in rows]
    if len(rows) != size or rows[rank] != mine:
        raise ValueError(
            f"rows must give the first dimension on each of the {size} ranks, {mine} at place {rank}; got {rows}"
        )
    uneven = any(n != mine for n in rows)
    sign = arrays.signature_of(source, 1 if uneven else 0)
    if uneven:  # a wrong number would make a rank read what nobody gave
        sign = arrays.Signature(arrays.signature((sign.hash, *rows)).hash, f"{sign.text}, rows {rows}")
    row = row_of(source)
    shape = (sum(rows), *source.shape[1:])
    target = source.empty(shape) if out is None else arrays.target(out, source, shape)
    arguments = _arguments(
        ALLGATHER, source, target, sign, algorithm=algorithm, counts=[n * row for n in rows], name=name
    )
    return Call(arguments, _Finish(source, target))


def reducescatter(
    x: Any, op: Any, out: Any, algorithm: str, pre: float, post: float, wire: Any, name: str, rank: int, size: int
) -> Call:
    op = as_op(op)
    source = arrays.source(x)
    require_rows("reducescatter", source)
    require_reducible("reducescatter", source, op)
    row = row_of(source)
    counts = [part(source.shape[0], size, r) * row for r in range(size)]
    shape = (part(source.shape[0], size, rank), *source.shape[1:])
    target = source.empty(shape) if out is None else arrays.target(out, source, shape)
    arguments = _arguments(
        REDUCESCATTER,
        source,
        target,
        arrays.signature_of(source),
        op=int(op),
        algorithm=algorithm,
        counts=counts,
        pre=pre,
        post=post,
        wire=wire_index(wire, source.dtype),
        name=name,
    )
    return Call(arguments, _Finish(source, target))


def splits_of(x: Buffer, splits: Any, size: int, some: bool = False) -> list[int]:
    """Rows to each rank: as given, checked, or the first dimension in even parts. `some`: rows may be left over."""
    require_rows("alltoall", x)
    if splits is None:
        if x.shape[0] % size:
            raise ValueError(
                f"alltoall without splits needs a first dimension that {size} ranks divide; it is {x.shape[0]}"
            )
        return [x.shape[0] // size] * size
    given = np.asarray(splits)
    listed = [int(n) for n in given] if given.ndim == 1 and given.dtype.kind in "iu" else []
    total = sum(listed)
    fits = total <= x.shape[0] if some else total == x.shape[0]
    if len(listed) != size or min(listed) < 0 or not fits:
        raise ValueError(
            f"splits must be {size} row counts that add up to {'at most ' if some else ''}the first dimension, "
            f"{x.shape[0]}; got {given.tolist()}"
        )
    return listed


def alltoall(
    x: Any, splits: Any, received: Sequence[int] | None, out: Any, algorithm: str, name: str, size: int
) -> Call:
    """`received`: rows from each rank; None: every rank sends the same even splits, which is then compared too."""
    source = arrays.source(x)
    rows = splits_of(source, splits, size)
    sign = arrays.signature_of(source, 0 if received is None else 1)
    received = rows if received is None else [int(n) for n in received]
    if len(received) != size:
        raise ValueError(f"received_splits must be {size} row counts; got {received}")
    row = row_of(source)
    shape = (sum(received), *source.shape[1:])
    target = source.empty(shape) if out is None else arrays.target(out, source, shape)
    arguments = _arguments(
        ALLTOALL,
        source,
        target,
        sign,
        algorithm=algorithm,
        count=row,
        counts=[n * row for n in rows],
        receive_counts=[n * row for n in received],
        name=name,
    )
    return Call(arguments, _Finish(source, target))


def barrier(algorithm: str, name: str) -> Call:
    return Call(
        (BARRIER, arrays.BYTES, int(Sum), 0, algorithm, 0, 0, 0, None, None, 1.0, 1.0, 1, -1, name, 0, ""), lambda: None
    )
