"""Collectives in the graphs of frameworks.

A graph is traced once and run often, without Python. Tracing creates a graph operation of the core
(csrc/graph_ops/graph_op.hpp) with the collective, its names and its process set. The graph stores
the number of the graph operation, which lives as long as the process. The graph operations of eager
programs are in a cache (`EagerGraphOps`).
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

_MAX_CACHED = 4096  # maximum number of cached graph operations of eager programs


class Reduce(NamedTuple):
    """Parameters of a reduction; collectives that only move data ignore them.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> bindings.Reduce(ringcomm.Average, pre=0.5).post
    1.0
    """

    op: Op = Op.Sum
    pre: float = 1.0
    post: float = 1.0
    wire: Any = None  # wire format (ops.wire_code)
    keeps: bool = False  # for a WireFormat with error feedback: the residual is added to the next run


PLAIN = Reduce()


class Description(NamedTuple):
    """All parameters of a graph operation. A Description is the key in `EagerGraphOps`.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> world, names, dtypes = ringcomm.global_process_set, ("x",), ("float32",)
    >>> bindings.Description(world, bindings.ALLREDUCE, names, dtypes).root
    0
    """

    process_set: ProcessSet
    collective: int
    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    how: Reduce = PLAIN
    root: int = 0  # rank in the set
    algorithm: str | None = None
    splits: bool = False
    even: bool = False  # all ranks must give the same number of rows: tracing fixed the result's shape
    # Called on the inputs instead of a collective (ringcomm._src.training.replicas).
    look: Callable[[int, list[Any]], None] | None = None
    every: int = 0  # number of runs from one call of `look` to the next


def dtype_index(name: str) -> int:
    """Returns the core's index of a dtype. Raises UnsupportedError if it cannot be sent."""
    if name not in _core.DTYPES[: _core.DTYPES.index("complex128") + 1]:
        raise UnsupportedError(f"tensors of {name} cannot be sent; only numbers and booleans can")
    return _core.DTYPES.index(name)


def root_in(process_set: ProcessSet, root_rank: int) -> int:
    """Returns the root's rank in the set; `root_rank` is a rank of the world, as in Horovod.

    Raises ValueError if the root is not in the set.
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
    default_name: Callable[[], str] | None = None,
) -> tuple[str, ...]:
    """Returns the names of the collectives of one graph operation.

    If `name` is None, `default_name` makes the name; if both are None, the process set's counter
    does.

    A default name identifies a position in a program, and does not contain the kind of
    collective. Ranks with different collectives at one position therefore use the same name, and
    get a MismatchError. With different names, the ranks would wait for ever.
    """
    kind, prefix = kind_of(collective), f"{kind_of(collective)}."
    if name is None and default_name is not None:
        name, prefix = default_name(), ""
    if name is None:
        return tuple(process_set.next_name(kind) for _ in range(count))
    if isinstance(name, str):
        name = [f"{name}.{i}" for i in range(count)] if grouped else [name]
    return tuple(f"{prefix}{base_name}" for base_name in name)


def kind_of(collective: int) -> str:
    return _core.COLLECTIVES[collective]


def check(description: Description) -> list[int]:
    """Returns the core's indices of the dtypes.

    Raises ValueError or UnsupportedError for invalid arguments, as eager operations do.
    """
    process.check_not_forked()
    reduction, kind = description.how, kind_of(description.collective)
    description.process_set.set_id()
    if description.look is not None:
        return []
    indices = [dtype_index(name) for name in description.dtypes]
    if description.collective in (calls.ALLREDUCE, calls.REDUCESCATTER):
        for index, name in zip(indices, description.dtypes, strict=True):
            calls.require_reducible(kind, Buffer(0, 0, index, 1, (), None, NumPyKind, name), reduction.op)
        calls.require_unscaled(kind, reduction.op, reduction.pre, reduction.post)
    return indices


def make(what: Description) -> _core.GraphOp:
    """Creates a graph operation of the core. Raises the errors of :func:`check`.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> ringcomm.init()
    >>> world, total = ringcomm.global_process_set, bindings.Reduce(ringcomm.Sum)
    >>> described = bindings.Description(world, bindings.ALLREDUCE, ("x",), ("float64",), total)
    >>> operation = bindings.make_graph_op(described)
    >>> bindings.run_graph_op(operation, [np.ones(2)])[0].tolist()
    [2.0, 2.0]
    """
    indices = check(what)
    process_set, reduction, kind = what.process_set, what.how, kind_of(what.collective)
    if what.look is not None:
        return _core.GraphOp(
            process_set.link,
            what.collective,
            what.names,
            look=what.look,
            every=what.every,
        )
    warmup_format, error_feedback = None, False
    if reduction.keeps and isinstance(reduction.wire, WireFormat):
        warmup_format, error_feedback = (
            reduction.wire if reduction.wire.warmup_steps else None,
            reduction.wire.error_feedback,
        )
    graph_op = _core.GraphOp(
        process_set.link,
        what.collective,
        what.names,
        op=int(reduction.op),
        root=what.root,
        pre=reduction.pre,
        post=reduction.post,
        wires=[wire_code(reduction.wire, index) for index in indices],
        algorithm=process_set.algorithm(kind, what.algorithm) if what.algorithm else "",
        splits=what.splits,
        even=what.even,
        first_wires=[wire_code(warmup_format.warmup_format(), index) for index in indices] if warmup_format else [],
        first_runs=warmup_format.warmup_steps if warmup_format else 0,
        keeps=error_feedback,
    )
    if error_feedback:
        _stores[graph_op.id] = _GraphOpResiduals(graph_op, what)
    return graph_op


class _GraphOpResiduals(ResidualStore):
    def __init__(self, graph_op: _core.GraphOp, description: Description) -> None:
        kind = f"{_core.COLLECTIVES[description.collective]}."
        names = [name.removeprefix(kind) for name in description.names]
        super().__init__(description.process_set, names, description.how.op, description.how.post)
        self._graph_op = graph_op
        self.register()

    def residual(self, index: int) -> Floats:
        return np.frombuffer(self._graph_op.residual(index), np.float32)

    def set_residual(self, index: int, values: Floats) -> None:
        array = np.ascontiguousarray(values, np.float32)
        self._graph_op.set_residual(index, array.ctypes.data, array.size)


_stores: dict[int, _GraphOpResiduals] = {}  # by the graph operation's number, for its lifetime


def run(graph_op: _core.GraphOp, given: Sequence[Any]) -> list[Any]:
    """Runs a graph operation on NumPy arrays, for frameworks that call Python.

    Results are 64-byte aligned, as TensorFlow requires.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> ringcomm.init()
    >>> world, names, dtypes = ringcomm.global_process_set, ("rows",), ("int64",)
    >>> operation = bindings.make_graph_op(
    ...     bindings.Description(world, bindings.ALLGATHER, names, dtypes)
    ... )
    >>> bindings.run_graph_op(operation, [np.array([rank])])[0].tolist()
    [0, 1]
    """
    buffers = [arrays.source(value).on_host() for value in given]
    results = []
    for output in graph_op.run([(buffer.address, buffer.dtype, buffer.shape) for buffer in buffers]):
        results.append(array_at(output.address, output.dtype, output.shape, output))
    return results


def array_at(address: int, dtype: int, shape: Sequence[int], owner: object = None) -> np.ndarray[Any, Any]:
    """Returns an array of the memory at `address`, owned by `owner`. `dtype`: the core's index."""
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
        self._cache: OrderedDict[Description, tuple[_core.GraphOp, Any]] = OrderedDict()

    def get(self, description: Description) -> Any:
        entry = self._cache.get(description)
        if entry is None:
            graph_op = make(description)
            entry = self._cache[description] = graph_op, self._wrap(graph_op)
            if len(self._cache) > _MAX_CACHED:
                _forget(self._cache.popitem(last=False)[1][0])
        return entry[1]


def _forget(graph_op: _core.GraphOp) -> None:
    _stores.pop(graph_op.id, None)
    graph_op.remove()
