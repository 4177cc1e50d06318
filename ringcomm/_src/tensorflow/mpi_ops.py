"""The operations of ``ringcomm.tensorflow``, in the module that scripts written for Horovod import.

All of them run eagerly and in ``tf.function``. In a graph each is one op, which waits without Python. Ranks match
operations by name. Nameless operations match by order: in eager programs, and within each traced function.

They raise the errors of :mod:`ringcomm` (``MismatchError``, ``PeerLostError`` and so on). An eager error is also an
instance of TensorFlow's type: ``tf.errors.FailedPreconditionError`` for a mismatch, as in Horovod,
``InvalidArgumentError``, ``UnavailableError`` or ``AbortedError``. A function's graph raises TensorFlow's type, with a
text that begins with the exception's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ringcomm._src.base.ops import Average, Sum, chosen_op, core_op
from ringcomm._src.base.ops import chosen_op as handle_average_backwards_compatibility
from ringcomm._src.compression.compression import compressed, parts_of
from ringcomm._src.named import joining, runtime
from ringcomm._src.named.basics import HorovodBasics
from ringcomm._src.named.build import (
    check_extension,
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
    split_list,
)
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.named.names import *  # noqa: F403
from ringcomm._src.named.names import __all__ as _names
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.tensorflow import gradients, operations
from ringcomm._src.tensorflow.compression import Compression

_basics = HorovodBasics()


def _reduced(
    tensors: Sequence[Any],
    name: Any,
    grouped: bool,
    op: Any,
    factors: tuple[float, float],
    compression: Any,
    process_set: ProcessSet,
    algorithm: str | None,
    reduce: Any = gradients.allreduce,
) -> list[Any]:
    wire, compressor = parts_of(compression)
    how = name, grouped, Reduce(op, *factors, wire), process_set, algorithm
    return compressed(compressor, operations.dense(tensors), lambda sent: reduce(sent, *how))


def scaled(tensor: Any, factor: float) -> Any:
    """Multiplies a tensor or ``tf.IndexedSlices``."""
    if factor == 1:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(tensor.values, factor), tensor.indices, tensor.dense_shape)
    if tensor.dtype.is_integer:
        raise NotImplementedError(f"sparse values of {tensor.dtype.name} cannot be scaled by {factor}: cast them first")
    return tensor * tf.constant(factor, tensor.dtype)


def sparse_allreduce(
    slices: Sequence[tf.IndexedSlices], op: Any, factors: tuple[float, float], name: Any, process_set: ProcessSet
) -> list[tf.IndexedSlices]:
    """Gathers values and indices of all ranks' sparse gradients, which represents their sum or average."""
    if op not in (Sum, Average):
        raise NotImplementedError(
            f"there is no {op.name} of tf.IndexedSlices: use Average or Sum, or make them dense (sparse_as_dense=True)"
        )
    parts = [part for one in slices for part in (scaled(one.values, factors[0] * factors[1]), one.indices)]
    if op == Average:  # as in Horovod, the average of integers is a float
        parts[::2] = [values / tf.cast(process_set.size(), values.dtype) for values in parts[::2]]
    gathered = iter(gradients.allgather(parts, name, True, process_set))
    return [tf.IndexedSlices(next(gathered), next(gathered), dense_shape=one.dense_shape) for one in slices]


# ---- collectives -----------------------------------------------------------------------------------------------------
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    algorithm: str | None = None,
) -> Any:
    """Reduces ``tensor`` over the ranks of ``process_set`` and returns the result on each of them. Differentiable.

    Args:
        tensor: a tensor, a variable or a value convertible to a tensor, with the same dtype and shape on every rank; or
            ``tf.IndexedSlices``, which are gathered and may differ in the number of rows.
        average: deprecated; True: ``op=Average``, False: ``op=Sum``.
        device_dense, device_sparse, ignore_name_scope: accepted because Horovod has them; not used.
        compression: wire format of wider floating data between hosts (``Compression.fp16``, ``.bf16``), or a custom
            compressor.
        op: ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
        prescale_factor, postscale_factor: multiply every rank's values before the reduction, and the result after it.
        name: name that matches the operations of the ranks.
        process_set: the ranks that take part.
        algorithm: name of the algorithm; None: the core chooses.

    Raises:
        MismatchError: on every rank, if dtypes, shapes or ops differ.
        UnsupportedError: (a TypeError and ValueError) the dtype does not support the op.
    """
    op = chosen_op(op, average)
    factors = prescale_factor, postscale_factor
    if isinstance(tensor, tf.IndexedSlices):
        return sparse_allreduce([tensor], op, factors, name, process_set)[0]
    return _reduced([tensor], name, False, op, factors, compression, process_set, algorithm)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
    algorithm: str | None = None,
) -> list[Any]:
    """Reduces several tensors as :func:`allreduce` does, together, once every rank has submitted all of them."""
    op = chosen_op(op, average)
    factors = prescale_factor, postscale_factor
    sparse = [one for one in tensors if isinstance(one, tf.IndexedSlices)]
    given = [one for one in tensors if not isinstance(one, tf.IndexedSlices)]
    reduced = iter(_reduced(given, name, True, op, factors, compression, process_set, algorithm))
    together = iter(sparse_allreduce(sparse, op, factors, name and f"{name}.sparse", process_set) if sparse else ())
    return [next(together if isinstance(one, tf.IndexedSlices) else reduced) for one in tensors]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    algorithm: str | None = None,
) -> Any:
    """Reduces ``tensor`` over the ranks and returns part r, along the first dimension, to rank r of the set.

    The first ``tensor.shape[0] % size`` ranks get one row more than the other ranks.
    """
    factors = prescale_factor, postscale_factor
    how = [tensor], name, False, core_op(op), factors, compression, process_set, algorithm
    return _reduced(*how, gradients.reducescatter)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    algorithm: str | None = None,
) -> list[Any]:
    """Reduces and scatters several tensors as :func:`reducescatter` does, in one operation."""
    factors = prescale_factor, postscale_factor
    how = tensors, name, True, core_op(op), factors, compression, process_set, algorithm
    return _reduced(*how, gradients.reducescatter)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Concatenates every rank's ``tensor`` along the first dimension, whose size may differ between ranks."""
    return gradients.allgather([tensor], name, False, process_set, algorithm)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> list[Any]:
    """Gathers several tensors as :func:`allgather` does, in one operation."""
    return gradients.allgather(tensors, name, True, process_set, algorithm) if tensors else []


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Returns the root's values on every rank. Dtype and shape are identical on all ranks.

    ``root_rank`` is a global rank.
    """
    return gradients.broadcast(tensor, root_rank, name, process_set, algorithm)


def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Assigns the root's values to the variables. Returns the variables; in a graph, the assign ops to run."""
    values = [tf.convert_to_tensor(one) for one in variables]
    received = operations.broadcast(values, root_rank, name, True, process_set)
    assigned = [one.assign(value) for one, value in zip(variables, received, strict=True)]
    return list(variables) if tf.executing_eagerly() else assigned


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Sends part q of ``tensor`` (along the first dimension) to rank q of the set, and returns the received parts.

    Args:
        tensor: a tensor with the same dtype on every rank.
        splits: rows to each rank, int32 or int64, with a sum of at most the first dimension; None: even parts.

    Returns:
        The received tensor; with ``splits``, the pair (tensor, rows from each rank as int32).
    """
    results = gradients.alltoall(tensor, splits, name, process_set, algorithm)
    return results[0] if splits is None else tuple(results)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until every rank of the set has called it."""
    operations.barrier(process_set)


def join(process_set: ProcessSet = global_process_set) -> int:
    """Joins this rank: it has no more data, and takes part without any until all ranks have joined.

    See :func:`ringcomm.join`.
    """
    return joining.join(process_set=process_set)


# ---- rank and size as ops: their values are read when they run -----------------------------------
def _asked(question: Any, name: str | None) -> Any:
    with tf.name_scope(name or "ringcomm"):
        answer = tf.numpy_function(lambda: np.int32(question()), [], tf.int32, stateful=True)
    answer.set_shape([])
    return answer


def _set_of(process_set_id: int) -> ProcessSet:
    for one in global_process_set.session().sets:
        if one.process_set_id == process_set_id:
            return one
    raise ValueError(f"there is no process set {process_set_id}")


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`size` of a process set each time it runs."""
    return _asked(lambda: _set_of(process_set_id).size(), name)


def rank_op(name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`rank` each time it runs."""
    return _asked(runtime.rank, name)


def local_size_op(name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`local_size` each time it runs."""
    return _asked(runtime.local_size, name)


def local_rank_op(name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`local_rank` each time it runs."""
    return _asked(runtime.local_rank, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns an int32 op: 1 if the set includes this rank, 0 if not, -1 before ``init``, -2 for an unknown set."""

    def included() -> int:
        if not runtime.is_initialized():
            return -1
        try:
            return int(_set_of(process_set_id).included())
        except ValueError:
            return -2

    return _asked(included, name)


__all__ = [
    "Compression",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "check_extension",
    "check_installed_version",
    "get_average_backwards_compatibility_fun",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "num_rank_is_power_2",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
    "split_list",
    *_names,
]
