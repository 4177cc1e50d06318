"""Builds the core's request of a collective from its buffers, for blocking, non-blocking and named calls.

No function here communicates: the callers (ordered.py, named.py) run the request. `rank` and `size` are those of the
communicator or process set. Further keyword arguments are fields of :class:`ringcomm._src.core._core.Request`: `name`
and `algorithm`; for reductions also `pre` and `post`.
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
class Written:
    """Finish function of a request that writes to `target`; it keeps the buffers alive."""

    def __init__(self, source: Buffer, target: Buffer, here: bool = True) -> None:
        self.source, self.target, self.here = source, target, here

    def __call__(self, operation: Any = None) -> Any:
        """Writes the result back if `target` is a copy, and returns the caller's array; None without a result here."""
        return self.target.write_back() if self.here else None


def request(
    collective: int,
    source: Buffer,
    target: Buffer | None,
    finish: Callable[..., Any] | None = None,
    sign: buffers.Signature | None = None,
    own: int | None = 0,
    call: str = "",
    **fields: Any,
) -> Request:
    """Builds a request. Raises ValueError if `source` and `target` overlap or are in different memories.

    `target`: may be `source`; if None, the core allocates the result. `finish` makes the result; if None, the result
    is the target's array. `sign`: the signature of the shape that ranks compare; if None, of all dimensions. `own`:
    offset of an in-place call (aliasing.shared_span). `call`: its name in messages; if empty, the collective's name.
    """
    if target is not None:
        fields["output"] = target.address
        fields["span"] = aliasing.shared_span(call or _core.COLLECTIVES[collective], source, target, own)
        finish = Written(source, target) if finish is None else finish
    fields.setdefault("count", source.count)
    sign = buffers.signature_of(source) if sign is None else sign
    place = place_of(_core.COLLECTIVES[collective], source, target)
    if place is None:
        return Request(collective, source.dtype, finish, input=source.address, shape=sign, **fields)
    output = None if target is None else target.place
    order = place.order(_core.COLLECTIVES[collective], output, host_output=target is None)
    finish = place.joined(order, finish, output)
    return Request(collective, source.dtype, finish, input=source.address, shape=sign, order=order, **fields)


def place_of(collective: str, source: Buffer, target: Buffer | None) -> MemoryLocation | None:
    """Returns the memory location of both arrays; None on the host. Raises ValueError if they differ."""
    if target is None or target is source or source.place is None is target.place:
        return source.place
    if source.place is None or target.place is None or source.place.device != target.place.device:
        names = [one.place.name if one.place is not None else "the host" for one in (source, target)]
        raise ValueError(
            f"{collective}: the array lies on {names[0]} and its output on {names[1]}; give both in one memory"
        )
    return source.place


def reduction_fields(collective: int, source: Buffer, op: Any, wire: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the request's fields `op` and `wire`. Raises if the op does not take the dtype or the factors."""
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
    """Raises ValueError for factors with an op that takes none."""
    if not op.scaled and not pre == post == 1:
        raise ValueError(f"{collective}: {op.name} takes no prescale_factor or postscale_factor; leave them out")


def require_only_a_name(collective: str, op: UserOp, wire: Any, fields: dict[str, Any]) -> None:
    """Raises ValueError if a user op is given arguments that only the core's ops take."""
    if wire is not None or fields["algorithm"] or not fields["pre"] == fields["post"] == 1:
        raise ValueError(
            f"{collective}: the function {op.name} is no op of the core: leave out algorithm, wire and the factors"
        )


# ---- requests --------------------------------------------------------------------------------------------------------
def allreduce(source: Buffer, target: Buffer, op: Any, wire: Any = None, **fields: Any) -> Request:
    """Builds an allreduce; `target` may be `source`."""
    return request(ALLREDUCE, source, target, **reduction_fields(ALLREDUCE, source, op, wire, fields), **fields)


def reduce(x: Any, out: Any, root: int, op: Any, rank: int, wire: Any = None, **fields: Any) -> Request:
    return _for_some(REDUCE, x, out, rank == root, op, wire, root=root, **fields)


def _for_some(collective: int, x: Any, out: Any, here: bool, op: Any, wire: Any = None, **fields: Any) -> Request:
    """Builds a reduction that has a result on some ranks only. `here`: this rank has one."""
    source, target = arrays.pair(x, out, here)
    fields |= reduction_fields(collective, source, op, wire, fields)
    return request(collective, source, target, Written(source, target, here), **fields)


def broadcast(source: Buffer, target: Buffer, root: int, **fields: Any) -> Request:
    """Builds a broadcast; `target` may be `source`."""
    return request(BROADCAST, source, target, root=root, **fields)


def scan(collective: int, x: Any, out: Any, op: Any, rank: int, **fields: Any) -> Request:
    """Builds a scan or an exscan; rank 0 has no result of an exscan."""
    if core_op(op) == Average:
        raise UnsupportedError(f"{_core.COLLECTIVES[collective]}: there is no average of the first ranks; divide a Sum")
    return _for_some(collective, x, out, collective == SCAN or rank > 0, op, **fields)


def barrier(**fields: Any) -> Request:
    return Request(BARRIER, buffers.BYTES, lambda operation=None: None, **fields)
