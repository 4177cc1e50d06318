"""Collectives, from buffers to what the core runs: one request each, for blocking, non-blocking and named calls alike.

No function here communicates, and none knows how its request will run: whoever runs it adds the name and the algorithm
(ordered.py, named.py). `rank` and `size` are the communicator's, or the process set's. Further keyword arguments are
fields of :class:`ringcomm._core.Request`: `name` and `algorithm`; for those that reduce also `pre` and `post`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringcomm import _core, arrays
from ringcomm._core import Request
from ringcomm.arrays import Buffer
from ringcomm.errors import UnsupportedError
from ringcomm.ops import FLOATING, Adasum, Op, core_op, wire_code

ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, ALLTOALL, BARRIER = (
    _core.COLLECTIVES.index(name)
    for name in ("allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "barrier")
)


# ---- what a request is made of ---------------------------------------------------------------------------------------
class Written:
    """Makes the result of a request that writes to `target`, and keeps its buffers alive."""

    def __init__(self, source: Buffer, target: Buffer, here: bool = True) -> None:
        self.source, self.target, self.here = source, target, here

    def __call__(self, operation: Any = None) -> Any:
        """Writes the result back if need be, and gives the caller's array; None where there is no result."""
        return self.target.write_back() if self.here else None


def request(
    collective: int,
    source: Buffer,
    target: Buffer | None,
    finish: Callable[..., Any] | None = None,
    sign: arrays.Signature | None = None,
    **fields: Any,
) -> Request:
    """`target`: may be `source`; None: the core allocates the result. `finish` makes the result; None: it is the
    target's array. `sign`: what ranks compare of the shape; None: all dimensions."""
    if target is not None:
        fields["output"] = target.address
        finish = Written(source, target) if finish is None else finish
    for buffer in (source, target):
        if buffer is not None and buffer.memory != "host":
            fields["memory"] = buffer.memory
            fields |= {when: event.handle for when in ("ready", "done") if (event := getattr(buffer, when)) is not None}
    fields.setdefault("count", source.count)
    sign = arrays.signature_of(source) if sign is None else sign
    return Request(collective, source.dtype, finish, input=source.address, shape=sign, **fields)


def _reduction(collective: int, source: Buffer, op: Any, wire: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that say how to reduce, checked."""
    op = core_op(op)
    require_reducible(_core.COLLECTIVES[collective], source, op)
    require_unscaled(_core.COLLECTIVES[collective], op, fields.get("pre", 1.0), fields.get("post", 1.0))
    return {"op": int(op), "wire": wire_code(wire, source.dtype)}


def require_reducible(collective: str, buffer: Buffer, op: Op) -> None:
    if op == Adasum and collective != "allreduce":
        raise UnsupportedError(f"{collective}: Adasum is for allreduce only")
    if op == Adasum and buffer.dtype not in FLOATING:
        raise UnsupportedError(f"{collective}: there is no Adasum of {buffer.label}; it is for floating dtypes")
    if op != Adasum and not (buffer.reducible and _core.reduces(buffer.dtype, op)):
        raise UnsupportedError(f"{collective}: there is no {op.name} of {buffer.label}; {_what_works(buffer, op)}")


def _what_works(buffer: Buffer, op: Op) -> str:
    dtypes = [name for index, name in enumerate(_core.DTYPES) if _core.reduces(index, op)]
    ops = [one.name for one in Op if buffer.reducible and one != Adasum and _core.reduces(buffer.dtype, one)]
    return f"arithmetic exists for {', '.join(dtypes)}" + (f"; {buffer.label} has {', '.join(ops)}" if ops else "")


def require_unscaled(collective: str, op: Op, pre: float, post: float) -> None:
    """ValueError for factors that the op does not take."""
    if not op.scaled and not pre == post == 1:
        raise ValueError(f"{collective}: {op.name} takes no prescale_factor or postscale_factor; leave them out")


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


# ---- requests --------------------------------------------------------------------------------------------------------
def allreduce(source: Buffer, target: Buffer, op: Any, wire: Any = None, **fields: Any) -> Request:
    """`target` may be `source`."""
    return request(ALLREDUCE, source, target, **_reduction(ALLREDUCE, source, op, wire, fields), **fields)


def reduce(x: Any, out: Any, root: int, op: Any, rank: int, wire: Any = None, **fields: Any) -> Request:
    here = rank == root
    source, target = arrays.pair(x, out) if here else arrays.pair(x, x, writes=False)
    fields |= _reduction(REDUCE, source, op, wire, fields)
    return request(REDUCE, source, target, Written(source, target, here), root=root, **fields)


def broadcast(source: Buffer, target: Buffer, root: int, **fields: Any) -> Request:
    """`target` may be `source`."""
    return request(BROADCAST, source, target, root=root, **fields)


def reducescatter(source: Buffer, out: Any, op: Any, rank: int, size: int, wire: Any = None, **fields: Any) -> Request:
    """`out`: an array for the result, or None."""
    require_rows("reducescatter", source)
    fields |= _reduction(REDUCESCATTER, source, op, wire, fields)
    rows, row = source.shape[0], row_of(source)
    counts = [part(rows, size, r) * row for r in range(size)]
    target = arrays.result(out, source, (part(rows, size, rank), *source.shape[1:]))
    return request(REDUCESCATTER, source, target, counts=counts, row=row, rows=rows, **fields)


def allgather(
    x: Any,
    out: Any,
    rows: Sequence[int] | None,
    rank: int,
    size: int,
    sign: arrays.Signature | None = None,
    **fields: Any,
) -> Request:
    """`rows`: the first dimension on every rank; None: the same everywhere, which is then compared too."""
    source = with_rows(arrays.source(x))
    mine = source.shape[0]
    rows = [mine] * size if rows is None else [int(n) for n in rows]
    if len(rows) != size or rows[rank] != mine:
        raise ValueError(
            f"rows must give the first dimension on each of the {size} ranks, {mine} at index {rank}; got {rows}"
        )
    if sign is None and any(n != mine for n in rows):  # a wrong number would make a rank read what nobody gave
        shape = arrays.signature_of(source, 1)
        sign = arrays.Signature(arrays.signature((shape.hash, *rows)).hash, f"{shape.text}, rows {rows}")
    row = row_of(source)
    target = arrays.result(out, source, (sum(rows), *source.shape[1:]))
    return request(ALLGATHER, source, target, sign=sign, counts=[n * row for n in rows], **fields)


def alltoall(
    x: Any,
    out: Any,
    splits: Any,
    received: Sequence[int] | None,
    size: int,
    sign: arrays.Signature | None = None,
    **fields: Any,
) -> Request:
    """`received`: rows from each rank; None: every rank sends the same even splits, which is then compared too."""
    source = arrays.source(x)
    rows = splits_of(source, splits, size)
    sign = arrays.signature_of(source, 0 if received is None else 1) if sign is None else sign
    received = rows if received is None else [int(n) for n in received]
    if len(received) != size:
        raise ValueError(f"received_splits must be {size} row counts; got {received}")
    row = row_of(source)
    fields |= {"counts": [n * row for n in rows], "receive_counts": [n * row for n in received], "count": row}
    target = arrays.result(out, source, (sum(received), *source.shape[1:]))
    return request(ALLTOALL, source, target, sign=sign, **fields)


def barrier(**fields: Any) -> Request:
    return Request(BARRIER, arrays.BYTES, lambda operation=None: None, **fields)


# ---- whose results have as many rows as the engine finds: they lie in the core's memory ------------------------------
def allgather_any(source: Buffer) -> Request:
    """First dimensions may differ between ranks."""
    source = with_rows(source)

    def finish(operation: _core.Operation) -> Any:
        return _adopt(operation, source)

    sign = arrays.signature_of(source, 1)
    return request(ALLGATHER, source, None, finish, sign, row=row_of(source), rows=source.shape[0])


def alltoall_any(source: Buffer, splits: Any, size: int) -> Request:
    """The result is (array, rows received from each rank: int32, of the same kind). Rows past the splits stay here."""
    listed = splits_of(source, splits, size, some=True)
    row, total = row_of(source), sum(listed)
    sent = source._replace(count=total * row, shape=(total, *source.shape[1:]))

    def finish(operation: _core.Operation) -> tuple[Any, Any]:
        return _adopt(operation, sent), sent.kind.of_numpy(np.array(operation.counts, np.int32))

    given = None if splits is None else listed
    return request(ALLTOALL, sent, None, finish, arrays.signature_of(sent, 1), row=row, rows=total, splits=given)


def _adopt(operation: _core.Operation, like: Buffer) -> Any:
    """The rows that came."""
    address, nbytes = operation.output() or (0, 0)
    return like.kind.adopt(like.array, (sum(operation.counts), *like.shape[1:]), address, nbytes, operation)
