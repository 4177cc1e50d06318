"""Collectives in the graphs of frameworks.

A graph is traced once and run often, without Python. Tracing creates a graph operation of the core
(csrc/graph_ops/graph_op.hpp) with the collective, its names and its process set; the graph stores its number. The
graph operations of a graph live as long as the process. Those of eager programs are in a cache (`EagerGraphOps`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.arrays import arrays, numpy_kind
from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.arrays.numpy_kind import NumPyKind
from ringcomm._src.base import arguments, process
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.base.ops import Op, wire_code
from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.calls import calls
from ringcomm._src.core import _core
from ringcomm._src.named.error_feedback import Floats, ResidualStore
from ringcomm._src.named.process_sets import ProcessSet

_MOST = 4096  # maximum number of cached graph operations of eager programs


class Reduce(NamedTuple):
    """Parameters of a reduction; collectives that only move data ignore them."""

    op: Op = Op.Sum
    pre: float = 1.0
    post: float = 1.0
    wire: Any = None  # wire format (ops.wire_code)
    keeps: bool = False  # for a WireFormat with error feedback: the residual is added to the next run


PLAIN = Reduce()


class Description(NamedTuple):
    """All parameters of a graph operation; it is the key of the cache of eager programs."""

    process_set: ProcessSet
    collective: int
    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    how: Reduce = PLAIN
    root: int = 0  # rank in the set
    algorithm: str | None = None
    splits: bool = False
    even: bool = False  # all ranks must give the same number of rows: tracing fixed the result's shape
    look: Callable[[int, list[Any]], None] | None = (
        None  # called on the inputs instead of a collective (ringcomm._src.training.replicas)
    )
    every: int = 0  # number of runs from one call of `look` to the next


def dtype_index(name: str) -> int:
    """Returns the core's index of a dtype. Raises UnsupportedError if it cannot be sent."""
    if name not in _core.DTYPES[: _core.DTYPES.index("complex128") + 1]:
        raise UnsupportedError(f"tensors of {name} cannot be sent; numbers and booleans can")
    return _core.DTYPES.index(name)


def root_in(process_set: ProcessSet, root_rank: int) -> int:
    """Returns the root's rank in the set; `root_rank` is a rank of the world, as in Horovod.

    Raises ValueError if it is not in the set.
    """
    process_set.set_id()
    root_rank = arguments.integer("broadcast: root_rank", root_rank)
    if root_rank not in process_set.ranks:
        raise ValueError(f"broadcast: root rank {root_rank} is not in the process set of ranks {process_set.ranks}")
    return process_set.ranks.index(root_rank)


def names(
    process_set: ProcessSet,
    collective: int,
    name: str | Sequence[str] | None,
    count: int,
    grouped: bool,
    otherwise: Callable[[], str] | None = None,
) -> tuple[str, ...]:
    """Returns the names of the collectives of one graph operation.

    Without `name`, `otherwise` makes the name; without both, the process set's counter does.

    A name of `otherwise` identifies a position in a program, and does not contain the kind. Ranks with different
    collectives at one position therefore get a MismatchError; with different names they would wait for ever.
    """
    kind, prefix = kind_of(collective), f"{kind_of(collective)}."
    if name is None and otherwise is not None:
        name, prefix = otherwise(), ""
    if name is None:
        return tuple(process_set.next_name(kind) for _ in range(count))
    if isinstance(name, str):
        name = [f"{name}.{i}" for i in range(count)] if grouped else [name]
    return tuple(f"{prefix}{one}" for one in name)


def kind_of(collective: int) -> str:
    return _core.COLLECTIVES[collective]


def check(what: Description) -> list[int]:
    """Returns the core's indices of the dtypes.

    Raises ValueError or UnsupportedError for invalid arguments, as eager operations do.
    """
    process.check_not_forked()
    how, kind = what.how, kind_of(what.collective)
    what.process_set.set_id()
    if what.look is not None:
        return []
    indices = [dtype_index(name) for name in what.dtypes]
    if what.collective in (calls.ALLREDUCE, calls.REDUCESCATTER):
        for index, name in zip(indices, what.dtypes, strict=True):
            calls.require_reducible(kind, Buffer(0, 0, index, 1, (), None, NumPyKind, name), how.op)
        calls.require_unscaled(kind, how.op, how.pre, how.post)
    return indices


def make(what: Description) -> _core.GraphOp:
    """Creates a graph operation of the core. Raises the errors of :func:`check`."""
    indices = check(what)
    process_set, how, kind = what.process_set, what.how, kind_of(what.collective)
    if what.look is not None:
        return _core.GraphOp(process_set.link, what.collective, what.names, look=what.look, every=what.every)
    warm, keeps = None, False
    if how.keeps and isinstance(how.wire, WireFormat):
        warm, keeps = how.wire if how.wire.warmup_steps else None, how.wire.error_feedback
    graph_op = _core.GraphOp(
        process_set.link,
        what.collective,
        what.names,
        op=int(how.op),
        root=what.root,
        pre=how.pre,
        post=how.post,
        wires=[wire_code(how.wire, index) for index in indices],
        algorithm=process_set.algorithm(kind, what.algorithm) if what.algorithm else "",
        splits=what.splits,
        even=what.even,
        first_wires=[wire_code(warm.first(), index) for index in indices] if warm else [],
        first_runs=warm.warmup_steps if warm else 0,
        keeps=keeps,
    )
    if keeps:
        _stores[graph_op.id] = _GraphOpResiduals(graph_op, what)
    return graph_op


class _GraphOpResiduals(ResidualStore):
    def __init__(self, graph_op: _core.GraphOp, what: Description) -> None:
        kind = f"{_core.COLLECTIVES[what.collective]}."
        names = [name.removeprefix(kind) for name in what.names]
        super().__init__(what.process_set, names, what.how.op, what.how.post)
        self._graph_op = graph_op
        self.register()

    def residual(self, index: int) -> Floats:
        return np.frombuffer(self._graph_op.residual(index), np.float32)

    def set_residual(self, index: int, values: Floats) -> None:
        given = np.ascontiguousarray(values, np.float32)
        self._graph_op.set_residual(index, given.ctypes.data, given.size)


_stores: dict[int, _GraphOpResiduals] = {}  # by the graph operation's number, for its lifetime


def run(graph_op: _core.GraphOp, given: Sequence[Any]) -> list[Any]:
    """Runs a graph operation on NumPy arrays, for frameworks that call Python.

    Results are 64-byte aligned, as TensorFlow requires.
    """
    buffers = [arrays.source(one).on_host() for one in given]
    results = []
    for one in graph_op.run([(buffer.address, buffer.dtype, buffer.shape) for buffer in buffers]):
        results.append(array_at(one.address, one.dtype, one.shape, one))
    return results


def array_at(address: int, dtype: int, shape: Sequence[int], owner: object = None) -> np.ndarray[Any, Any]:
    """Returns an array over memory at `address`. `dtype`: the core's index. `owner`: object that owns the memory."""
    kind = _numpy_dtype(_core.DTYPES[dtype])
    nbytes = math.prod(shape) * kind.itemsize
    memory = np.asarray(numpy_kind.CoreMemory(address, nbytes, owner)) if nbytes else np.empty(0, np.uint8)
    return memory.view(kind).reshape(shape)


def _numpy_dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # every framework with bfloat16 installs it

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


class EagerGraphOps:
    """A cache of the graph operations of eager programs, by their descriptions.

    `wrap` turns a graph operation into the object that a framework needs for it.
    """

    def __init__(self, wrap: Callable[[_core.GraphOp], Any]) -> None:
        self._wrap = wrap
        self._known: OrderedDict[Description, tuple[_core.GraphOp, Any]] = OrderedDict()

    def get(self, what: Description) -> Any:
        known = self._known.get(what)
        if known is None:
            graph_op = make(what)
            known = self._known[what] = graph_op, self._wrap(graph_op)
            if len(self._known) > _MOST:
                _forget(self._known.popitem(last=False)[1][0])
        return known[1]


def _forget(graph_op: _core.GraphOp) -> None:
    _stores.pop(graph_op.id, None)
    graph_op.remove()
