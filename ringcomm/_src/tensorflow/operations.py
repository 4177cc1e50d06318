"""Collectives on TensorFlow's tensors, in eager mode and in graphs, without gradients.

`gradients.py` makes them differentiable. This module also names nameless operations in graphs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringcomm._src.calls.calls import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, REDUCESCATTER
from ringcomm._src.named import graph_ops
from ringcomm._src.named.graph_ops import Description, Reduce
from ringcomm._src.named.process_sets import ProcessSet
from ringcomm._src.tensorflow import library

# TensorFlow numbers graphs of branches, loops and their gradients with a counter of the process,
# which may differ between ranks. These patterns remove the numbers.
_PART = re.compile(
    r"(?:^|_)((?:true|false|body|cond|indexed_case_branch\d+|(?:rewritten_)?grad)(?=_\d)|cflow_gradient_wrapper)"
    r"(?:_\d+)*(?:_rewritten)?$"
)
_GRADIENT = re.compile(r"^(__(?:forward|backward)_.*?)(_\d+)*$")
# Attributes of graphs: counts of nameless operations, and of branches and loops that communicate;
# the path of a branch or loop.
_COUNTS, _PLACE = "_ringcomm_counts", "_ringcomm_place"

Tensors = Sequence[Any]
Name = str | Sequence[str] | None


def dense(tensors: Tensors) -> list[Any]:
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


def _next_index(graph: Any, kind: str) -> int:
    counts = getattr(graph, _COUNTS, None)
    if counts is None:
        counts = {}
        setattr(graph, _COUNTS, counts)
    counts[kind] = counts.get(kind, -1) + 1
    return int(counts[kind])


def _path(graph: Any) -> str:
    """Returns the function's name.

    For a branch, a loop or the gradient of either, adds an index. The index counts the graphs of
    this kind that communicate, within the outer graph.
    """
    name = getattr(graph, "name", "graph")
    if not _PART.search(name) or getattr(graph, "outer_graph", None) is None:
        return _GRADIENT.sub(r"\1", name)
    path = getattr(graph, _PLACE, None)
    if path is None:
        kind = _PART.search(name)[1]  # type: ignore[index]
        path = f"{_path(graph.outer_graph)}/{kind}.{_next_index(graph.outer_graph, kind)}"
        setattr(graph, _PLACE, path)
    return str(path)


def _default_name() -> Callable[[], str] | None:
    """Returns a function that names a nameless operation in a graph; None in eager mode.

    The name is the operation's index within the traced function.

    Each trace counts from zero, so ranks may trace a different number of times. Names of tensors
    are not usable: TensorFlow numbers them, and a rank that prints has more tensors.
    """
    if tf.executing_eagerly():
        return None

    def name() -> str:
        graph = tf.compat.v1.get_default_graph()
        return f"{_path(graph)}.{_next_index(graph, 'nameless')}"

    return name


def _describe(
    collective: int, tensors: Tensors, name: Name, grouped: bool, process_set: ProcessSet, **parameters: Any
) -> Description:
    names = graph_ops.names(process_set, collective, name, len(tensors), grouped, _default_name())
    return Description(process_set, collective, names, tuple(tensor.dtype.name for tensor in tensors), **parameters)


def _any_rows(tensors: Tensors) -> list[Any]:
    """Returns the shapes of results with unknown first dimensions."""
    shapes = [tensor.shape for tensor in tensors]
    return [None if shape.rank is None else tf.TensorShape([None]).concatenate(shape[1:]) for shape in shapes]


def _run(
    collective: int, tensors: Tensors, name: Name, grouped: bool, process_set: ProcessSet, **parameters: Any
) -> list[Any]:
    if not tensors:
        return []
    description = _describe(collective, tensors, name, grouped, process_set, **parameters)
    same = collective in (ALLREDUCE, BROADCAST)
    shapes = [tensor.shape for tensor in tensors] if same else _any_rows(tensors)
    return library.run(description, tensors, [tensor.dtype for tensor in tensors], shapes)


def allreduce(
    tensors: Tensors,
    name: Name,
    grouped: bool,
    reduction: Reduce,
    process_set: ProcessSet,
    algorithm: str | None = None,
) -> list[Any]:
    return _run(ALLREDUCE, dense(tensors), name, grouped, process_set, how=reduction, algorithm=algorithm)


def broadcast(
    tensors: Tensors, root_rank: int, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    root = graph_ops.root_in(process_set, root_rank) if tensors else 0
    return _run(BROADCAST, dense(tensors), name, grouped, process_set, root=root, algorithm=algorithm)


def allgather(
    tensors: Tensors, name: Name, grouped: bool, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    return _run(ALLGATHER, dense(tensors), name, grouped, process_set, algorithm=algorithm)


def reducescatter(
    tensors: Tensors,
    name: Name,
    grouped: bool,
    reduction: Reduce,
    process_set: ProcessSet,
    algorithm: str | None = None,
) -> list[Any]:
    tensors = dense(tensors)
    _require_rows("reducescatter", tensors)
    return _run(REDUCESCATTER, tensors, name, grouped, process_set, how=reduction, algorithm=algorithm)


def alltoall(
    tensor: Any, splits: Any, name: str | None, process_set: ProcessSet, algorithm: str | None = None
) -> list[Any]:
    """Returns [received rows], and with splits [received rows, row count from each rank]."""
    tensors = dense([tensor])
    _require_rows("alltoall", tensors)
    description = _describe(ALLTOALL, tensors, name, False, process_set, splits=splits is not None, algorithm=algorithm)
    shapes = _any_rows(tensors)
    if splits is None:
        return library.run(description, tensors, [tensors[0].dtype], shapes)
    rows = tf.convert_to_tensor(splits)
    if rows.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"alltoall: splits must be a vector of int32 or int64, not of {rows.dtype.name}")
    return library.run(description, [*tensors, rows], [tensors[0].dtype, tf.int32], [*shapes, [process_set.size()]])


def _require_rows(collective: str, tensors: Tensors) -> None:
    if any(tensor.shape.rank == 0 for tensor in tensors):
        raise ValueError(f"{collective} needs a tensor with a first dimension, not a scalar")


def barrier(process_set: ProcessSet) -> None:
    names = graph_ops.names(process_set, BARRIER, None, 1, False, _default_name())
    library.run(Description(process_set, BARRIER, names, ()), [], [], [])
