"""Named operations, from buffers to the engine: shared by the array API and the framework bindings.

Each function makes the request of one operation; :func:`submit` hands requests to the engine and gives a Handle. A name
pairs the operations of different ranks, which may submit in any order; an operation without a name gets one from the
number of nameless operations of its kind that the process set has had, so these must be submitted in the same order
everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcomm import _core, arrays, calls, process
from ringcomm.arrays import Buffer
from ringcomm.handles import Handle
from ringcomm.ops import Adasum, Op, Sum, wire_index
from ringcomm.process_sets import ProcessSet


class Item(NamedTuple):
    """A request, and what makes the result of its operation (and keeps the buffers alive)."""

    request: _core.NamedRequest
    finish: Callable[[_core.Operation], Any]
    nameless: bool


def _item(
    finish: Callable[[_core.Operation], Any],
    process_set: ProcessSet,
    collective: int,
    source: Buffer,
    output: int,
    name: str | None,
    sign: arrays.Signature,
    *,
    op: int = int(Sum),
    root: int = 0,
    algorithm: str = "",
    row: int = 1,
    rows: int = 0,
    splits: Sequence[int] | None = None,
    pre: float = 1.0,
    post: float = 1.0,
    wire: int = -1,
) -> Item:
    kind = _core.COLLECTIVES[collective]
    full = process_set.next_name(kind) if name is None else f"{kind}.{name}"
    request = _core.NamedRequest(
        collective,
        source.dtype,
        op,
        root,
        algorithm,
        source.address,
        output,
        source.count,
        row,
        rows,
        splits,
        pre,
        post,
        1,
        wire,
        full,
        sign.hash,
        sign.text,
    )
    return Item(request, finish, name is None)


def allreduce(
    process_set: ProcessSet,
    source: Buffer,
    target: Buffer,
    op: Op,
    name: str | None,
    pre: float = 1.0,
    post: float = 1.0,
    wire: Any = None,
) -> Item:
    """`target` may be `source`. The result is the target's array."""
    calls.require_reducible("allreduce", source, op)

    def finish(operation: _core.Operation, keep: Buffer = source) -> Any:
        return target.write_back()

    session = process_set.session()
    return _item(
        finish,
        process_set,
        calls.ALLREDUCE,
        source,
        target.address,
        name,
        arrays.signature_of(source),
        op=int(op),
        algorithm="" if op == Adasum else session.engine_algorithm,
        pre=pre,
        post=post,
        wire=wire_index(wire, source.dtype),
    )


def broadcast(process_set: ProcessSet, source: Buffer, target: Buffer, root_rank: int, name: str | None) -> Item:
    """`root_rank` is a rank of the world, as in Horovod. ValueError if it is not in the set."""
    process_set.set_id()
    if root_rank not in process_set.ranks:
        raise ValueError(f"broadcast: root rank {root_rank} is not in the process set of ranks {process_set.ranks}")

    def finish(operation: _core.Operation, keep: Buffer = source) -> Any:
        return target.write_back()

    return _item(
        finish,
        process_set,
        calls.BROADCAST,
        source,
        target.address,
        name,
        arrays.signature_of(source),
        root=process_set.ranks.index(root_rank),
    )


def allgather(process_set: ProcessSet, source: Buffer, name: str | None) -> Item:
    """First dimensions may differ between ranks; the result lies in the core's memory."""
    source = calls.with_rows(source)

    def finish(operation: _core.Operation) -> Any:
        return _adopt(operation, source, (sum(operation.counts), *source.shape[1:]))

    return _item(
        finish,
        process_set,
        calls.ALLGATHER,
        source,
        0,
        name,
        arrays.signature_of(source, 1),
        row=calls.row_of(source),
        rows=source.shape[0],
    )


def reducescatter(
    process_set: ProcessSet,
    source: Buffer,
    op: Op,
    name: str | None,
    pre: float = 1.0,
    post: float = 1.0,
    wire: Any = None,
) -> Item:
    """Rank r of the set gets part r along the first dimension."""
    me = process_set.require_rank()
    calls.require_rows("reducescatter", source)
    calls.require_reducible("reducescatter", source, op)
    rows = calls.part(source.shape[0], process_set.size(), me)
    target = source.empty((rows, *source.shape[1:]))

    def finish(operation: _core.Operation, keep: Buffer = source) -> Any:
        return target.array

    return _item(
        finish,
        process_set,
        calls.REDUCESCATTER,
        source,
        target.address,
        name,
        arrays.signature_of(source),
        op=int(op),
        row=calls.row_of(source),
        rows=source.shape[0],
        pre=pre,
        post=post,
        wire=wire_index(wire, source.dtype),
    )


def alltoall(process_set: ProcessSet, source: Buffer, splits: Any, name: str | None) -> Item:
    """The result is (array, rows received from each rank: int32, of the same kind). Rows past the splits stay here."""
    process_set.set_id()
    listed = calls.splits_of(source, splits, process_set.size(), some=True)
    row = calls.row_of(source)
    source = source._replace(count=sum(listed) * row, shape=(sum(listed), *source.shape[1:]))

    def finish(operation: _core.Operation) -> tuple[Any, Any]:
        received = operation.counts
        output = _adopt(operation, source, (sum(received), *source.shape[1:]))
        return output, arrays.like_kind(np.array(received, np.int32), source)

    return _item(
        finish,
        process_set,
        calls.ALLTOALL,
        source,
        0,
        name,
        arrays.signature_of(source, 1),
        row=row,
        rows=source.shape[0],
        splits=None if splits is None else listed,
    )


def barrier(process_set: ProcessSet) -> Item:
    nothing = arrays.source(np.empty(0, np.uint8))
    return _item(lambda operation: None, process_set, calls.BARRIER, nothing, 0, None, arrays.signature(()))


def _adopt(operation: _core.Operation, like: Buffer, shape: arrays.Shape) -> Any:
    address, nbytes = operation.output() or (0, 0)
    return like.kind.adopt(like.array, shape, address, nbytes, operation)


# ---- submission ------------------------------------------------------------------------------------------------------
def submit(process_set: ProcessSet, item: Item) -> Handle[Any]:
    """Raises ValueError if an operation of this name is in flight, or this rank is not in the set."""
    operation = _when_free(process_set, [item])[0]
    return Handle([operation], lambda: item.finish(operation), operation.name)


def submit_first(
    process_set: ProcessSet, item: Item, array: Any, op: Any, average: bool | None, pre: float, post: float, name: Any
) -> Handle[Any]:
    """As `submit`, of an all-reduce in place; the next one like it may go the short way (`ProcessSet.known`)."""
    handle = submit(process_set, item)
    if average is None and (op is None or type(op) is Op) and op is not Adasum:
        tensor = arrays.is_plain_tensor(array)
        if tensor or isinstance(array, np.ndarray):
            process_set.known.remember(name, array, op, pre, post, item.request, tensor)
    return handle


def submit_group(process_set: ProcessSet, items: Sequence[Item]) -> Handle[list[Any]]:
    """Operations that run together, once all of them are ready on every rank. The result is the list of theirs."""
    if not items:
        return Handle([], list, "empty group")
    operations = _when_free(process_set, items)

    def finish() -> list[Any]:
        return [item.finish(operation) for item, operation in zip(items, operations, strict=True)]

    return Handle(operations, finish, f"group of {operations[0].name}")


def _when_free(process_set: ProcessSet, items: Sequence[Item]) -> list[_core.Operation]:
    """Submits. The name of a nameless operation comes up again after many others: should the earlier one still be in
    flight, this waits for it (it was submitted long before on every rank, so its end needs nothing that comes
    later)."""
    session = process_set.session()
    process.check_not_forked()
    requests = [item.request for item in items]
    names = {item.request.name for item in items if item.nameless}
    while True:
        try:
            if len(requests) == 1:
                return [session.engine.submit(process_set.set_id(), requests[0])]
            return session.engine.submit_group(process_set.set_id(), requests)
        except ValueError:
            if names.isdisjoint(session.engine.pending()):
                raise
        if not session.worker.threaded:
            session.worker.help()
        time.sleep(0.0005)


def group_names(name: str | None, count: int) -> list[str | None]:
    return [None] * count if name is None else [f"{name}.{i}" for i in range(count)]


def grouped(
    tensors: Sequence[Any], name: str | None, process_set: ProcessSet, make: Callable[[Any, str | None], Item]
) -> Handle[list[Any]]:
    """Submits what `make` makes of each tensor and its name, as a group."""
    process_set.set_id()  # before anything is made
    names = group_names(name, len(tensors))
    return submit_group(process_set, [make(tensor, one) for tensor, one in zip(tensors, names, strict=True)])
