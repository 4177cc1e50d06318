"""Builds requests of collectives by rows: gathers, scatters, all-to-alls, reducescatters.

calls.py builds the other requests. Counts are rows along the first dimension; the core gets counts
of elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays import aliasing, arrays, buffers
from ringcomm._src.arrays.arrays import Buffer
from ringcomm._src.arrays.rows import (
    at_least_1d,
    elements_per_row,
    even_parts,
    require_rows,
    rows_of_all,
    rows_of_parts,
    splits_of,
    with_counts,
)
from ringcomm._src.base import arguments
from ringcomm._src.calls.calls import (
    ALLGATHER,
    ALLTOALL,
    REDUCESCATTER,
    WriteBack,
    location_of,
    reduction_fields,
    request,
)
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

    `out`: an array for the result, or None. `rows`: number of rows of each rank's part; if None,
    parts are even.
    """
    rows_per_rank = rows_of_parts("reducescatter", source, rows, size)
    fields |= reduction_fields(REDUCESCATTER, source, op, wire, fields)
    signature = None if rows is None else with_counts(buffers.signature_of(source), rows_per_rank)
    row = elements_per_row(source)
    target = arrays.result(out, source, (rows_per_rank[rank], *source.shape[1:]))
    counts = [n * row for n in rows_per_rank]
    in_place_offset = -sum(counts[:rank])
    return request(
        REDUCESCATTER,
        source,
        target,
        signature=signature,
        in_place_offset=in_place_offset,
        counts=counts,
        row=row,
        rows=source.shape[0],
        **fields,
    )


def allgather(
    x: Any,
    out: Any,
    rows: Sequence[int] | None,
    rank: int,
    size: int,
    signature: buffers.Signature | None = None,
    **fields: Any,
) -> Request:
    """Builds an allgather.

    `rows`: the first dimension on every rank. If None, it is identical on all ranks, and ranks
    compare it.
    """
    source = at_least_1d(arrays.source(x))
    own_rows = source.shape[0]
    rows = rows_of_all("rows", rows, own_rows, rank, size)
    if signature is None and any(n != own_rows for n in rows):
        signature = with_counts(buffers.signature_of(source, 1), rows)
    row = elements_per_row(source)
    target = arrays.result(out, source, (sum(rows), *source.shape[1:]))
    counts = [n * row for n in rows]
    return request(
        ALLGATHER, source, target, signature=signature, in_place_offset=sum(counts[:rank]), counts=counts, **fields
    )


def allgather_per_rank(x: Any, outs: Sequence[Any], rank: int, size: int, **fields: Any) -> Request:
    """Builds an allgather of flat arrays into one array of `outs` per rank.

    The sizes of these arrays are the ranks' counts. For arrays in host memory only.
    """
    source = arrays.source(x)
    write_backs = [WriteBack(source, arrays.target(out, source, tuple(out.shape))) for out in outs]
    targets = [write_back.target for write_back in write_backs]
    aliasing.require_disjoint("allgather", "out", [(target.address, aliasing.bytes_of(target)) for target in targets])
    for index, target in enumerate(targets):
        location_of("allgather", source, target)
        aliasing.shared_span("allgather", source, target, 0 if index == rank else None)
    rows = rows_of_all("the list's sizes", [target.count for target in targets], source.count, rank, size)
    signature = with_counts(buffers.signature_of(source, 1), rows) if len(set(rows)) > 1 else None
    fields |= {"counts": rows, "output_per_rank": [target.address for target in targets]}
    return request(
        ALLGATHER,
        source,
        None,
        lambda operation=None: [write_back() for write_back in write_backs],
        signature,
        **fields,
    )


def alltoall(
    x: Any,
    out: Any,
    splits: Any,
    received: Sequence[int] | None,
    size: int,
    signature: buffers.Signature | None = None,
    **fields: Any,
) -> Request:
    """Builds an alltoall.

    `received`: number of rows from each rank. If None, all ranks send equal parts of arrays of the
    same shape, which ranks compare.
    """
    source = arrays.source(x)
    rows = splits_of(source, splits, size)
    signature = buffers.signature_of(source, 0 if received is None else 1) if signature is None else signature
    received = rows if received is None else arguments.counts("alltoall: received_splits", received)
    if len(received) != size:
        raise ValueError(f"received_splits must be {size} row counts; got {received}")
    target = arrays.result(out, source, (sum(received), *source.shape[1:]))
    return alltoallv(
        source, target, rows, received, signature, in_place_offset=0 if rows == received else None, **fields
    )


def alltoallv(
    source: Buffer,
    target: Buffer,
    sent: Sequence[int],
    received: Sequence[int],
    signature: buffers.Signature,
    has_result: bool = True,
    call: str = "alltoall",
    in_place_offset: int | None = None,
    **fields: Any,
) -> Request:
    """Builds an all-to-all of `sent` rows to each rank, and `received` rows from each rank.

    `has_result`: this rank has a result. Error messages show the field `count` as the number of
    elements of a row; by default it is the number of elements of a row of `source`.
    aliasing.shared_span explains `call` and `in_place_offset`, which is in rows here.
    """
    row = elements_per_row(source)
    in_place_offset = None if in_place_offset is None else in_place_offset * row
    fields |= {"counts": [n * row for n in sent], "receive_counts": [n * row for n in received]}
    fields.setdefault("count", row)
    return request(
        ALLTOALL, source, target, WriteBack(source, target, has_result), signature, in_place_offset, call, **fields
    )


# A gather is an all-to-all in which all ranks have zero rows for every rank except the root; in a
# scatter, only the root has rows. Zero rows need no message.
def gather(
    x: Any, out: Any, root: int, rows: Sequence[int] | None, rank: int, size: int, name: str, **fields: Any
) -> Request:
    """Builds a gather; `rows` as in :func:`allgather`."""
    root = arguments.root("gather", root, size)
    source = at_least_1d(arrays.source(x))
    own_rows, has_result = source.shape[0], rank == root
    given = rows_of_all("gather: counts", rows, own_rows, rank, size)
    total = sum(given) if has_result else 0
    target = arrays.result(out if has_result else None, source, (total, *source.shape[1:]))
    sent = [own_rows if other == root else 0 for other in range(size)]
    received = given if has_result else [0] * size
    signature = with_counts(buffers.signature_of(source, 1), given, root)
    name = name or f"gather to rank {root}"
    return alltoallv(
        source, target, sent, received, signature, has_result, "gather", sum(given[:rank]), name=name, **fields
    )


def scatter(
    x: Any, out: Any, root: int, rows: Sequence[int] | None, rank: int, size: int, name: str, **fields: Any
) -> Request:
    """Builds a scatter.

    `rows`: number of rows of each rank's part; if None, parts are equal. On ranks other than the
    root, `x` may be None if `out` is given.
    """
    root = arguments.root("scatter", root, size)
    has_result = rank == root
    if x is None and (has_result or out is None):
        raise ValueError(
            "scatter: the root must give x; every other rank must give out, or an x of the root's dtype and shape"
        )
    given = arrays.target(out) if x is None else arrays.source(x)
    require_rows("scatter", given)
    if rows is not None:
        rows_per_rank = (
            rows_of_parts("scatter", given, rows, size) if has_result else arguments.counts("scatter: counts", rows)
        )
    elif x is None:
        rows_per_rank = [given.shape[0]] * size
    elif given.shape[0] % size:
        raise ValueError(
            f"scatter needs a first dimension that is a multiple of the {size} ranks; it is {given.shape[0]}; "
            "use scatterv"
        )
    else:
        rows_per_rank = even_parts(given.shape[0], size)
    if len(rows_per_rank) != size or min(rows_per_rank) < 0:
        raise ValueError(f"scatter: counts must be {size} row counts; got {rows_per_rank}")
    target = arrays.result(out, given, (rows_per_rank[rank], *given.shape[1:]))
    source = given if has_result else given.empty((0, *given.shape[1:]))
    sent = rows_per_rank if has_result else [0] * size
    received = [rows_per_rank[rank] if other == root else 0 for other in range(size)]
    signature = with_counts(buffers.signature_of(given, 1), rows_per_rank, root)
    name = name or f"scatter from rank {root}"
    return alltoallv(
        source, target, sent, received, signature, True, "scatter", -sum(rows_per_rank[:rank]), name=name, **fields
    )


# ---- submitted calls: ranks exchange the numbers of rows, and the core allocates the result --------------------------
def allgather_any(source: Buffer) -> Request:
    """Builds an allgather of arrays; their first dimensions may differ between ranks.

    For named operations, and for calls submitted to a group.
    """
    source = at_least_1d(source)

    def finish(operation: _core.Operation) -> Any:
        return _adopt(operation, source)

    signature = buffers.signature_of(source, 1)
    return request(ALLGATHER, source, None, finish, signature, row=elements_per_row(source), rows=source.shape[0])


def alltoall_any(source: Buffer, splits: Any, size: int) -> Request:
    """Builds an alltoall. Its result is (array, int32 array of the number of rows per rank).

    Rows past the sum of the splits are not sent.
    """
    row_counts = splits_of(source, splits, size, allow_partial=True)
    row, total = elements_per_row(source), sum(row_counts)
    sent = source._replace(count=total * row, shape=(total, *source.shape[1:]))

    def finish(operation: _core.Operation) -> tuple[Any, Any]:
        return _adopt(operation, sent), sent.kind.of_numpy(np.array(operation.counts, np.int32))

    given = None if splits is None else row_counts
    return request(ALLTOALL, sent, None, finish, buffers.signature_of(sent, 1), row=row, rows=total, splits=given)


def _adopt(operation: _core.Operation, like: Buffer) -> Any:
    """Returns the received rows as an array of the kind of `like`, in the operation's memory."""
    address, nbytes = operation.output() or (0, 0)
    return like.kind.adopt(like.array, (sum(operation.counts), *like.shape[1:]), address, nbytes, operation)
