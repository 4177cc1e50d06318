"""Named operations, from buffers to the engine: shared by the array API and the framework bindings.

Each function makes the request of one operation; :func:`submit` hands requests to the engine and gives a Handle. A name
pairs the operations of different ranks, which may submit in any order; an operation without a name gets one from the
number of nameless operations of its kind that the process set has had, so these must be submitted in the same order
everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringcomm import _core, arrays, calls, process
from ringcomm._core import Request
from ringcomm.arrays import Buffer
from ringcomm.handles import Handle
from ringcomm.ops import Adasum, Op
from ringcomm.process_sets import ProcessSet


def _named(process_set: ProcessSet, request: Request, name: str | None) -> Request:
    """Its name comes last: a request that was refused has not counted."""
    kind = _core.COLLECTIVES[request.collective]
    request.nameless = name is None
    request.name = process_set.next_name(kind) if name is None else f"{kind}.{name}"
    return request


def _algorithm(process_set: ProcessSet, collective: int, name: str | None) -> str:
    """ValueError for an unknown one."""
    return process_set.algorithm(_core.COLLECTIVES[collective], name) if name else ""


def allreduce(
    process_set: ProcessSet,
    source: Buffer,
    target: Buffer,
    op: Op,
    name: str | None,
    pre: float = 1.0,
    post: float = 1.0,
    wire: Any = None,
    algorithm: str | None = None,
) -> Request:
    """`target` may be `source`. The result is the target's array."""
    algorithm = _algorithm(process_set, calls.ALLREDUCE, algorithm)
    request = calls.allreduce(source, target, op, wire, pre=pre, post=post, algorithm=algorithm)
    return _named(process_set, request, name)


def broadcast(
    process_set: ProcessSet,
    source: Buffer,
    target: Buffer,
    root_rank: int,
    name: str | None,
    algorithm: str | None = None,
) -> Request:
    """`root_rank` is a rank of the world, as in Horovod. ValueError if it is not in the set."""
    process_set.set_id()
    if root_rank not in process_set.ranks:
        raise ValueError(f"broadcast: root rank {root_rank} is not in the process set of ranks {process_set.ranks}")
    algorithm = _algorithm(process_set, calls.BROADCAST, algorithm)
    root = process_set.ranks.index(root_rank)
    return _named(process_set, calls.broadcast(source, target, root, algorithm=algorithm), name)


def allgather(process_set: ProcessSet, source: Buffer, name: str | None, algorithm: str | None = None) -> Request:
    """First dimensions may differ between ranks; the result lies in the core's memory."""
    source = calls.with_rows(source)

    def finish(operation: _core.Operation) -> Any:
        return _adopt(operation, source)

    algorithm = _algorithm(process_set, calls.ALLGATHER, algorithm)
    fields = {"row": calls.row_of(source), "rows": source.shape[0], "algorithm": algorithm}
    request = calls.request(calls.ALLGATHER, source, finish, arrays.signature_of(source, 1), **fields)
    return _named(process_set, request, name)


def reducescatter(
    process_set: ProcessSet,
    source: Buffer,
    op: Op,
    name: str | None,
    pre: float = 1.0,
    post: float = 1.0,
    wire: Any = None,
    algorithm: str | None = None,
) -> Request:
    """Rank r of the set gets part r along the first dimension."""
    me, size = process_set.require_rank(), process_set.size()
    algorithm = _algorithm(process_set, calls.REDUCESCATTER, algorithm)
    request = calls.reducescatter(source, None, op, me, size, wire, pre=pre, post=post, algorithm=algorithm)
    return _named(process_set, request, name)


def alltoall(
    process_set: ProcessSet, source: Buffer, splits: Any, name: str | None, algorithm: str | None = None
) -> Request:
    """The result is (array, rows received from each rank: int32, of the same kind). Rows past the splits stay here."""
    process_set.set_id()
    listed = calls.splits_of(source, splits, process_set.size(), some=True)
    row = calls.row_of(source)
    source = source._replace(count=sum(listed) * row, shape=(sum(listed), *source.shape[1:]))

    def finish(operation: _core.Operation) -> tuple[Any, Any]:
        return _adopt(operation, source), source.kind.of_numpy(np.array(operation.counts, np.int32))

    algorithm = _algorithm(process_set, calls.ALLTOALL, algorithm)
    fields = {"row": row, "rows": source.shape[0], "splits": listed if splits is not None else None}
    request = calls.request(
        calls.ALLTOALL, source, finish, arrays.signature_of(source, 1), algorithm=algorithm, **fields
    )
    return _named(process_set, request, name)


def barrier(process_set: ProcessSet) -> Request:
    return _named(process_set, calls.barrier(), None)


def _adopt(operation: _core.Operation, like: Buffer) -> Any:
    """The rows that came, which lie in the core's memory."""
    address, nbytes = operation.output() or (0, 0)
    return like.kind.adopt(like.array, (sum(operation.counts), *like.shape[1:]), address, nbytes, operation)


# ---- submission ------------------------------------------------------------------------------------------------------
def submit(process_set: ProcessSet, request: Request) -> Handle[Any]:
    """Raises ValueError if an operation of this name is in flight, or this rank is not in the set."""
    operation = _when_free(process_set, [request])[0]
    return Handle([operation], lambda: request.finish(operation), operation.name)


def submit_first(
    process_set: ProcessSet,
    request: Request,
    array: Any,
    op: Any,
    average: bool | None,
    pre: float,
    post: float,
    name: Any,
) -> Handle[Any]:
    """As `submit`, of an all-reduce in place; the next one like it may go the short way (`ProcessSet.known`)."""
    handle = submit(process_set, request)
    if average is None and (op is None or type(op) is Op) and op is not Adasum:
        kind = arrays.kind_of(array)
        if kind.plain(array):
            foreign = kind is not arrays.NumPyKind
            process_set.known.remember(name, array, op, pre, post, request, foreign)
    return handle


def submit_group(process_set: ProcessSet, requests: Sequence[Request]) -> Handle[list[Any]]:
    """Operations that run together, once all of them are ready on every rank. The result is the list of theirs."""
    if not requests:
        return Handle([], list, "empty group")
    operations = _when_free(process_set, requests)

    def finish() -> list[Any]:
        return [request.finish(operation) for request, operation in zip(requests, operations, strict=True)]

    return Handle(operations, finish, f"group of {operations[0].name}")


def _when_free(process_set: ProcessSet, requests: Sequence[Request]) -> list[_core.Operation]:
    """Submits. The name of a nameless operation comes up again after many others: should the earlier one still be in
    flight, this waits for it (it was submitted long before on every rank, so its end needs nothing that comes
    later)."""
    session = process_set.session()
    process.check_not_forked()
    names = {request.name for request in requests if request.nameless}
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
    tensors: Sequence[Any], name: str | None, process_set: ProcessSet, make: Callable[[Any, str | None], Request]
) -> Handle[list[Any]]:
    """Submits what `make` makes of each tensor and its name, as a group."""
    process_set.set_id()  # before anything is made
    names = group_names(name, len(tensors))
    return submit_group(process_set, [make(tensor, one) for tensor, one in zip(tensors, names, strict=True)])
