"""Submission of named operations: names requests, and passes them to the engine.

A name matches the operations of different ranks, which may submit in any order. An operation
without a name is named by a counter of its kind in the process set, so all ranks must submit
nameless operations in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ringcomm._src.arrays import aliasing, arrays
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base import process
from ringcomm._src.base.ops import Adasum, Op
from ringcomm._src.calls.calls import ALLREDUCE, REDUCESCATTER
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request
from ringcomm._src.named.process_sets import ProcessSet


def submit(
    process_set: ProcessSet,
    request: Request,
    name: str | None = None,
    algorithm: str | None = None,
    priority: int = 0,
) -> Handle[Any]:
    """Submits an operation and returns its handle.

    Raises ValueError if an operation of this name is in flight, this rank is not in the set, or the
    algorithm is unknown.
    """
    _prepare(process_set, request, name, algorithm, priority)
    operation = _submit_when_free(process_set, [request])[0]
    return Handle([operation], lambda: request.finish(operation), operation.name)


def submit_group(
    process_set: ProcessSet,
    requests: Sequence[Request],
    name: str | Sequence[str] | None = None,
    algorithm: str | None = None,
    priority: int = 0,
) -> Handle[list[Any]]:
    """Submits operations that run together, once all of them are ready on every rank.

    The handle's result is the list of their results. `name`: name of the group, or a list with each
    operation's name.
    """
    if not requests:
        return Handle([], list, "empty group")
    reduced = [request for request in requests if request.collective in (ALLREDUCE, REDUCESCATTER)]
    aliasing.require_disjoint("group", "tensors", [request.written for request in reduced])
    for i, request in enumerate(requests):
        request_name = None if name is None else f"{name}.{i}" if isinstance(name, str) else name[i]
        _prepare(process_set, request, request_name, algorithm, priority)
    operations = _submit_when_free(process_set, requests)

    def finish() -> list[Any]:
        return [request.finish(operation) for request, operation in zip(requests, operations, strict=True)]

    return Handle(operations, finish, f"group of {operations[0].name}")


def _prepare(process_set: ProcessSet, request: Request, name: str | None, algorithm: str | None, priority: int) -> None:
    """Sets a request's priority and algorithm, then its name.

    In this order a refused algorithm does not advance the counter of names.
    """
    kind = _core.COLLECTIVES[request.collective]
    if priority:
        request.priority = priority
    if algorithm:
        request.algorithm = process_set.algorithm(kind, algorithm)
    request.nameless = name is None
    request.name = process_set.next_name(kind) if name is None else f"{kind}.{name}"


def submit_first(
    process_set: ProcessSet, request: Request, name: Any, array: Any, op: Any, pre: float, post: float
) -> Handle[Any]:
    """Submits an in-place all-reduce, and caches it for repetitions (`ProcessSet.cached_calls`)."""
    handle = submit(process_set, request, name)
    like = arrays.kind_of(array).like(array)
    if like is not None and (op is None or type(op) is Op) and op is not Adasum:
        process_set.cached_calls.remember(name, op, pre, post, request, like)
    return handle


def _submit_when_free(process_set: ProcessSet, requests: Sequence[Request]) -> list[_core.Operation]:
    """Submits requests, and returns their operations.

    The names of nameless operations repeat after NAMELESS operations. If the earlier operation of
    the same name is still in flight, waits until it is done. This wait cannot deadlock, because
    every rank submits the earlier operation first.
    """
    session = process_set.session()
    process.check_not_forked()
    names = {request.name for request in requests if request.nameless}
    was_pending = bool(names)
    while True:
        try:
            if len(requests) == 1:
                return [session.engine.submit(process_set.set_id(), requests[0])]
            return session.engine.submit_group(process_set.set_id(), requests)
        except ValueError:
            # The earlier operation may have ended after it caused this error.
            is_pending = not names.isdisjoint(session.engine.pending())
            if not was_pending and not is_pending:
                raise
            was_pending = is_pending
        if not session.worker.threaded:
            session.worker.help()
        time.sleep(0.0005)
