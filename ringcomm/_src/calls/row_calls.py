"""Builds requests of collectives that divide arrays by rows: gathers, scatters, all-to-alls and reducescatters.

calls.py builds the other requests. Counts are rows along the first dimension; the core gets counts of elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays import aliasing, arrays, buffers
from ringcomm._src.arrays.arrays import Buffer
from ringcomm._src.arrays.rows import (
    parts,
    require_rows,
    row_of,
    rows_of_all,
    rows_of_parts,
    signed,
    splits_of,
    with_rows,
)
from ringcomm._src.base import arguments
from ringcomm._src.calls.calls import ALLGATHER, ALLTOALL, REDUCESCATTER, Written, place_of, reduction_fields, request
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request


def reducescatter(
    source: Buffer,
    out: Any,
    op: Any,
    rank: int,
    size: int,
    wire: Any = None,
    rows: Sequence[int] | None = None,
    **fields: Any,
) -> Request:
    """Builds a reducescatter.

    `out`: an array for the result, or None. `rows`: number of rows of each rank's part; if None, parts are even.
    """
    each = rows_of_parts("reducescatter", source, rows, size)
    fields |= reduction_fields(REDUCESCATTER, source, op, wire, fields)
    sign = None if rows is None else signed(buffers.signature_of(source), each)
    row = row_of(source)
    target = arrays.result(out, source, (each[rank], *source.shape[1:]))
    counts = [n * row for n in each]
    own = -sum(counts[:rank])
    return request(
        REDUCESCATTER, source, target, sign=sign, own=own, counts=counts, row=row, rows=source.shape[0], **fields
    )


def allgather(
    x: Any,
    out: Any,
    rows: Sequence[int] | None,
    rank: int,
    size: int,
    sign: buffers.Signature | None = None,
    **fields: Any,
) -> Request:
    """Builds an allgather.

    `rows`: the first dimension on every rank. If None, it is identical on all ranks, and ranks compare it.
    """
    source = with_rows(arrays.source(x))
    mine = source.shape[0]
    rows = rows_of_all("rows", rows, mine, rank, size)
    if sign is None and any(n != mine for n in rows):
        sign = signed(buffers.signature_of(source, 1), rows)
    row = row_of(source)
    target = arrays.result(out, source, (sum(rows), *source.shape[1:]))
    counts = [n * row for n in rows]
    return request(ALLGATHER, source, target, sign=sign, own=sum(counts[:rank]), counts=counts, **fields)


def allgather_per_rank(x: Any, outs: Sequence[Any], rank: int, size: int, **fields: Any) -> Request:
    """Builds an allgather of flat arrays into one array of `outs` per rank; their sizes are the ranks' counts.

    For arrays in host memory only.
    """
    source = arrays.source(x)
    written = [Written(source, arrays.target(out, source, tuple(out.shape))) for out in outs]
    targets = [one.target for one in written]
    aliasing.require_disjoint("allgather", "out", [(one.address, aliasing.bytes_of(one)) for one in targets])
    for index, target in enumerate(targets):
        place_of("allgather", source, target)
        aliasing.shared_span("allgather", source, target, 0 if index == rank else None)
    rows = rows_of_all("the list's sizes", [one.count for one in targets], source.count, rank, size)
    sign = signed(buffers.signature_of(source, 1), rows) if len(set(rows)) > 1 else None
    fields |= {"counts": rows, "output_per_rank": [one.address for one in targets]}
    return request(ALLGATHER, source, None, lambda operation=None: [one() for one in written], sign, **fields)


def alltoall(
    x: Any,
    out: Any,
    splits: Any,
    received: Sequence[int] | None,
    size: int,
    sign: buffers.Signature | None = None,
    **fields: Any,
) -> Request:
    """Builds an alltoall.

    `received`: number of rows from each rank. If None, every rank sends identical even splits, and ranks compare that.
    """
    source = arrays.source(x)
    rows = splits_of(source, splits, size)
    sign = buffers.signature_of(source, 0 if received is None else 1) if sign is None else sign
    received = rows if received is None else arguments.counts("alltoall: received_splits", received)
    if len(received) != size:
        raise ValueError(f"received_splits must be {size} row counts; got {received}")
    target = arrays.result(out, source, (sum(received), *source.shape[1:]))
    return between(source, target, rows, received, sign, own=0 if rows == received else None, **fields)


def between(
    source: Buffer,
    target: Buffer,
    sent: Sequence[int],
    received: Sequence[int],
    sign: buffers.Signature,
    here: bool = True,
    call: str = "alltoall",
    own: int | None = None,
    **fields: Any,
) -> Request:
    """Builds an all-to-all that sends `sent` rows to each rank and receives `received` rows from each rank.

    `here`: this rank has a result. The field `count` is the number of elements that messages call a row; by default
    those of one row. For `call`, and `own` in rows, see aliasing.shared_span.
    """
    row = row_of(source)
    own = None if own is None else own * row
    fields |= {"counts": [n * row for n in sent], "receive_counts": [n * row for n in received]}
    fields.setdefault("count", row)
    return request(ALLTOALL, source, target, Written(source, target, here), sign, own, call, **fields)


# Gather and scatter are all-to-alls with zero rows between ranks other than the root; no message is sent for zero rows.
def gather(
    x: Any, out: Any, root: int, rows: Sequence[int] | None, rank: int, size: int, name: str, **fields: Any
) -> Request:
    """Builds a gather; `rows` as in :func:`allgather`."""
    root = arguments.root("gather", root, size)
    source = with_rows(arrays.source(x))
    mine, here = source.shape[0], rank == root
    given = rows_of_all("gather: counts", rows, mine, rank, size)
    total = sum(given) if here else 0
    target = arrays.result(out if here else None, source, (total, *source.shape[1:]))
    sent = [mine if other == root else 0 for other in range(size)]
    received = given if here else [0] * size
    sign = signed(buffers.signature_of(source, 1), given, root)
    name = name or f"gather to rank {root}"
    return between(source, target, sent, received, sign, here, "gather", sum(given[:rank]), name=name, **fields)


def scatter(
    x: Any, out: Any, root: int, rows: Sequence[int] | None, rank: int, size: int, name: str, **fields: Any
) -> Request:
    """Builds a scatter.

    `rows`: number of rows of each rank's part; if None, parts are equal. On ranks other than the root, `x` may be None
    if `out` is given.
    """
    root = arguments.root("scatter", root, size)
    here = rank == root
    if x is None and (here or out is None):
        raise ValueError(
            "scatter: the root must give x, and the other ranks either out or an array of the root's dtype and shape"
        )
    given = arrays.target(out) if x is None else arrays.source(x)
    require_rows("scatter", given)
    if rows is not None:
        each = rows_of_parts("scatter", given, rows, size) if here else arguments.counts("scatter: counts", rows)
    elif x is None:
        each = [given.shape[0]] * size
    elif given.shape[0] % size:
        raise ValueError(
            f"scatter needs a first dimension that {size} ranks divide; it is {given.shape[0]}: use scatterv"
        )
    else:
        each = parts(given.shape[0], size)
    if len(each) != size or min(each) < 0:
        raise ValueError(f"scatter: counts must be {size} row counts; got {each}")
    target = arrays.result(out, given, (each[rank], *given.shape[1:]))
    source = given if here else given.empty((0, *given.shape[1:]))
    sent = each if here else [0] * size
    received = [each[rank] if other == root else 0 for other in range(size)]
    sign = signed(buffers.signature_of(given, 1), each, root)
    name = name or f"scatter from rank {root}"
    return between(source, target, sent, received, sign, True, "scatter", -sum(each[:rank]), name=name, **fields)


# ---- named operations: the engine finds the number of rows, and the core allocates the result ------------------------
def allgather_any(source: Buffer) -> Request:
    """Builds an allgather of arrays; their first dimensions may differ between ranks."""
    source = with_rows(source)

    def finish(operation: _core.Operation) -> Any:
        return _adopt(operation, source)

    sign = buffers.signature_of(source, 1)
    return request(ALLGATHER, source, None, finish, sign, row=row_of(source), rows=source.shape[0])


def alltoall_any(source: Buffer, splits: Any, size: int) -> Request:
    """Builds an alltoall with the result (array, rows received from each rank: int32, of the same kind).

    Rows past the sum of the splits are not sent.
    """
    listed = splits_of(source, splits, size, some=True)
    row, total = row_of(source), sum(listed)
    sent = source._replace(count=total * row, shape=(total, *source.shape[1:]))

    def finish(operation: _core.Operation) -> tuple[Any, Any]:
        return _adopt(operation, sent), sent.kind.of_numpy(np.array(operation.counts, np.int32))

    given = None if splits is None else listed
    return request(ALLTOALL, sent, None, finish, buffers.signature_of(sent, 1), row=row, rows=total, splits=given)


def _adopt(operation: _core.Operation, like: Buffer) -> Any:
    """Returns the received rows as an array of the kind of `like`, in the operation's memory."""
    address, nbytes = operation.output() or (0, 0)
    return like.kind.adopt(like.array, (sum(operation.counts), *like.shape[1:]), address, nbytes, operation)
