"""Requests of collectives whose arrays are rows, each for a rank or from one: see calls.py for the rest."""

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
    """`out`: an array for the result, or None. `rows`: of each rank's part; None: even parts."""
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
    """`rows`: the first dimension on every rank; None: the same everywhere, which is then compared too."""
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
    """Each rank's flat array into one of `outs`, which give every rank's size. In the host's memory only."""
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
    """`received`: rows from each rank; None: every rank sends the same even splits, which is then compared too."""
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
    """Rows to each rank and from each. `here`: there is a result. The field `count`: elements of what messages call a
    row; a row's if it is not given. `call`, and `own` in rows: aliasing.shared_span."""
    row = row_of(source)
    own = None if own is None else own * row
    fields |= {"counts": [n * row for n in sent], "receive_counts": [n * row for n in received]}
    fields.setdefault("count", row)
    return request(ALLTOALL, source, target, Written(source, target, here), sign, own, call, **fields)


# What only a root gives or gets is an all-to-all in which the others have no rows: nothing is sent for these.
def gather(
    x: Any, out: Any, root: int, rows: Sequence[int] | None, rank: int, size: int, name: str, **fields: Any
) -> Request:
    """`rows`: as in :func:`allgather`."""
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
    """`rows`: of each rank's part; None: the same for all. Elsewhere than at the root `x` may be None if there is an
    `out`."""
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


# ---- whose results have as many rows as the engine finds: they lie in the core's memory ------------------------------
def allgather_any(source: Buffer) -> Request:
    """First dimensions may differ between ranks."""
    source = with_rows(source)

    def finish(operation: _core.Operation) -> Any:
        return _adopt(operation, source)

    sign = buffers.signature_of(source, 1)
    return request(ALLGATHER, source, None, finish, sign, row=row_of(source), rows=source.shape[0])


def alltoall_any(source: Buffer, splits: Any, size: int) -> Request:
    """The result is (array, rows received from each rank: int32, of the same kind). Rows past the splits stay here."""
    listed = splits_of(source, splits, size, some=True)
    row, total = row_of(source), sum(listed)
    sent = source._replace(count=total * row, shape=(total, *source.shape[1:]))

    def finish(operation: _core.Operation) -> tuple[Any, Any]:
        return _adopt(operation, sent), sent.kind.of_numpy(np.array(operation.counts, np.int32))

    given = None if splits is None else listed
    return request(ALLTOALL, sent, None, finish, buffers.signature_of(sent, 1), row=row, rows=total, splits=given)


def _adopt(operation: _core.Operation, like: Buffer) -> Any:
    """The rows that came."""
    address, nbytes = operation.output() or (0, 0)
    return like.kind.adopt(like.array, (sum(operation.counts), *like.shape[1:]), address, nbytes, operation)
