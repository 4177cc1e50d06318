"""Builds a collective's request from its buffers, for ordered, non-blocking and named calls.

The callers run the request. `rank` and `size` are those of the communicator or process set. Further
keyword arguments are fields of `_core.Request`: `name` and `algorithm`; for reductions also `pre`
and `post`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcomm._src.arrays import aliasing, arrays, buffers
from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.arrays.device.location import MemoryLocation
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.base.ops import FLOATING, Adasum, Average, Op, UserOp, core_op, wire_code
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, ALLTOALL, BARRIER, SCAN, EXSCAN = (
    _core.COLLECTIVES.index(name) for name in _core.COLLECTIVES
)


# ---- parts of a request ----------------------------------------------------------------------------------------------
class WriteBack:
    """Finish function of a request that writes to `target`; it keeps the buffers alive."""

    def __init__(self, source: Buffer, target: Buffer, has_result: bool = True) -> None:
        self.source, self.target, self.has_result = source, target, has_result

    def __call__(self, operation: Any = None) -> Any:
        """Returns the caller's array, to which it copies the result if needed; None: no result."""
        return self.target.write_back() if self.has_result else None


def request(
    collective: int,
    source: Buffer,
    target: Buffer | None,
    finish: Callable[..., Any] | None = None,
    signature: buffers.Signature | None = None,
    in_place_offset: int | None = 0,
    call: str = "",
    **fields: Any,
) -> Request:
    """Builds a request. Raises ValueError if the buffers overlap or are in different memories.

    `target`: may be `source`; None: the core allocates the result. `finish` makes the result; None:
    it is the target's array. `signature`: of the dimensions that ranks compare; None: of all.
    `in_place_offset`: see aliasing.shared_span. `call`: name in messages; "": the collective's.
    """
    if target is not None:
        fields["output"] = target.address
        fields["span"] = aliasing.shared_span(call or _core.COLLECTIVES[collective], source, target, in_place_offset)
        finish = WriteBack(source, target) if finish is None else finish
    fields.setdefault("count", source.count)
    signature = buffers.signature_of(source) if signature is None else signature
    location = location_of(_core.COLLECTIVES[collective], source, target)
    if location is None:
        return Request(collective, source.dtype, finish, input=source.address, shape=signature, **fields)
    output = None if target is None else target.place
    order = location.order(_core.COLLECTIVES[collective], output, host_output=target is None)
    finish = location.finish_function(order, finish, output)
    return Request(collective, source.dtype, finish, input=source.address, shape=signature, order=order, **fields)


def location_of(collective: str, source: Buffer, target: Buffer | None) -> MemoryLocation | None:
    """Returns the arrays' memory location; None: the host. ValueError: the locations differ."""
    if target is None or target is source or source.place is None is target.place:
        return source.place
    if source.place is None or target.place is None or source.place.device != target.place.device:
        names = [buffer.place.name if buffer.place is not None else "the host" for buffer in (source, target)]
        raise ValueError(
            f"{collective}: the array is on {names[0]} and its output on {names[1]}; both must be in the same memory"
        )
    return source.place


def reduction_fields(collective: int, source: Buffer, op: Any, wire: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields `op` and `wire`. Raises if the op does not take the dtype or factors."""
    op = core_op(op)
    require_reducible(_core.COLLECTIVES[collective], source, op)
    require_unscaled(_core.COLLECTIVES[collective], op, fields.get("pre", 1.0), fields.get("post", 1.0))
    return {"op": int(op), "wire": wire_code(wire, source.dtype)}


def require_reducible(collective: str, buffer: Buffer, op: Op) -> None:
    if op == Adasum and collective != "allreduce":
        raise UnsupportedError(f"{collective}: Adasum works with allreduce only")
    if op == Adasum and buffer.dtype not in FLOATING:
        raise UnsupportedError(f"{collective}: Adasum does not support {buffer.label}; it needs a floating dtype")
    if op != Adasum and not (buffer.reducible and _core.reduces(buffer.dtype, op)):
        raise UnsupportedError(f"{collective}: {op.name} does not support {buffer.label}; {_supported(buffer, op)}")


def _supported(buffer: Buffer, op: Op) -> str:
    dtypes = [name for index, name in enumerate(_core.DTYPES) if _core.reduces(index, op)]
    ops = [known.name for known in Op if buffer.reducible and known != Adasum and _core.reduces(buffer.dtype, known)]
    return f"it supports {', '.join(dtypes)}" + (f"; ops for {buffer.label}: {', '.join(ops)}" if ops else "")


def require_unscaled(collective: str, op: Op, pre: float, post: float) -> None:
    """Raises ValueError for factors with an op that takes none."""
    if not op.scaled and not pre == post == 1:
        raise ValueError(f"{collective}: {op.name} takes no prescale_factor or postscale_factor; leave them out")


def require_only_a_name(collective: str, op: UserOp, wire: Any, fields: dict[str, Any]) -> None:
    """Raises ValueError if a user op is given arguments that only the core's ops take."""
    if wire is not None or fields["algorithm"] or not fields["pre"] == fields["post"] == 1:
        raise ValueError(
            f"{collective}: the user-defined op {op.name} takes no algorithm, wire or scale factors; leave them out"
        )


# ---- requests --------------------------------------------------------------------------------------------------------
def allreduce(source: Buffer, target: Buffer, op: Any, wire: Any = None, **fields: Any) -> Request:
    """Builds an allreduce; `target` may be `source`."""
    return request(ALLREDUCE, source, target, **reduction_fields(ALLREDUCE, source, op, wire, fields), **fields)


def reduce(x: Any, out: Any, root: int, op: Any, rank: int, wire: Any = None, **fields: Any) -> Request:
    return _reduce(REDUCE, x, out, rank == root, op, wire, root=root, **fields)


def _reduce(collective: int, x: Any, out: Any, has_result: bool, op: Any, wire: Any = None, **fields: Any) -> Request:
    """Builds a reduction that has a result on some ranks only. `has_result`: this rank has one."""
    source, target = arrays.pair(x, out, has_result)
    fields |= reduction_fields(collective, source, op, wire, fields)
    return request(collective, source, target, WriteBack(source, target, has_result), **fields)


def broadcast(source: Buffer, target: Buffer, root: int, **fields: Any) -> Request:
    """Builds a broadcast; `target` may be `source`."""
    return request(BROADCAST, source, target, root=root, **fields)


def scan(collective: int, x: Any, out: Any, op: Any, rank: int, **fields: Any) -> Request:
    """Builds a scan or an exscan; rank 0 has no result of an exscan."""
    if core_op(op) == Average:
        raise UnsupportedError(f"{_core.COLLECTIVES[collective]}: Average is not supported; use Sum and divide")
    return _reduce(collective, x, out, collective == SCAN or rank > 0, op, **fields)


def barrier(**fields: Any) -> Request:
    return Request(BARRIER, buffers.BYTES, lambda operation=None: None, **fields)
