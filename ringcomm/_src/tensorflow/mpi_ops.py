"""The operations of ``ringcomm.tensorflow``, in the module that scripts written for Horovod import.

All of them run eagerly and in ``tf.function``. In a graph each is one op, which waits without
Python. Ranks match operations by name. Nameless operations match by order: in eager programs, and
within each traced function.

They raise the errors of :mod:`ringcomm` (``MismatchError``, ``PeerLostError`` and so on). An eager
error is also an instance of TensorFlow's type: ``tf.errors.FailedPreconditionError`` for a
mismatch, as in Horovod, ``InvalidArgumentError``, ``UnavailableError`` or ``AbortedError``. A
function's graph raises TensorFlow's type, with a text that begins with the exception's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ringcomm._src.base.ops import Average, Sum, chosen_op, core_op
from ringcomm._src.base.ops import chosen_op as handle_average_backwards_compatibility
from ringcomm._src.compression.compression import parts_of, reduce_compressed
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
    arguments = name, grouped, Reduce(op, *factors, wire), process_set, algorithm
    return reduce_compressed(compressor, operations.dense(tensors), lambda sent: reduce(sent, *arguments))


def scaled(tensor: Any, factor: float) -> Any:
    """Multiplies a tensor or ``tf.IndexedSlices``."""
    if factor == 1:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(tensor.values, factor), tensor.indices, tensor.dense_shape)
    if tensor.dtype.is_integer:
        raise NotImplementedError(f"sparse {tensor.dtype.name} values cannot be scaled by {factor}: cast them to float")
    return tensor * tf.constant(factor, tensor.dtype)


def sparse_allreduce(
    slices: Sequence[tf.IndexedSlices], op: Any, factors: tuple[float, float], name: Any, process_set: ProcessSet
) -> list[tf.IndexedSlices]:
    """Sums or averages sparse gradients: gathers the values and indices of all ranks."""
    if op not in (Sum, Average):
        raise NotImplementedError(
            f"tf.IndexedSlices cannot be reduced with {op.name}: use Average or Sum, or convert them to dense tensors "
            "(sparse_as_dense=True)"
        )
    parts = [part for tensor in slices for part in (scaled(tensor.values, factors[0] * factors[1]), tensor.indices)]
    if op == Average:  # as in Horovod, the average of integers is a float
        parts[::2] = [values / tf.cast(process_set.size(), values.dtype) for values in parts[::2]]
    gathered = iter(gradients.allgather(parts, name, True, process_set))
    return [tf.IndexedSlices(next(gathered), next(gathered), dense_shape=tensor.dense_shape) for tensor in slices]


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
    """Reduces every rank's ``tensor``; returns the result on every rank. Differentiable.

    Parameters
    ----------
    tensor : tf.Tensor | tf.Variable | tf.IndexedSlices | array_like
        Dtype and shape are the same on every rank. ``tf.IndexedSlices`` are gathered, and may
        differ in the number of rows.
    average : bool | None
        Deprecated; True: ``op=Average``, False: ``op=Sum``.
    device_dense, device_sparse, ignore_name_scope
        Accepted because Horovod has them; not used.
    compression : compressor
        Data format between hosts (``Compression.fp16``, ``.bf16``), for wider floating dtypes; or a
        custom compressor.
    op : Op | None
        ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum``.
    prescale_factor, postscale_factor : float
        ``prescale_factor`` multiplies every rank's values before the reduction,
        ``postscale_factor`` the result.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    tf.Tensor | tf.IndexedSlices
        A tensor of the same dtype and shape; for ``tf.IndexedSlices``, the rows of all ranks.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or ops differ.
    UnsupportedError
        The op does not support the dtype. The class derives from TypeError and ValueError.
    NotImplementedError
        The op is not supported for ``tf.IndexedSlices``.

    Examples
    --------
    >>> x = tf.fill([2], 1.0 + hvd.rank())             # [1, 1] and [2, 2]
    >>> hvd.allreduce(x, name="gradient").numpy().tolist()
    [1.5, 1.5]
    >>> hvd.allreduce(x, name="gradient", op=hvd.Sum).numpy().tolist()
    [3.0, 3.0]
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
    """Reduces several tensors as :func:`allreduce` does, in one operation.

    The operation runs when every rank has submitted all of its tensors.

    Parameters
    ----------
    tensors : Sequence[tf.Tensor | tf.IndexedSlices]
        These and the other arguments are as for :func:`allreduce`.

    Returns
    -------
    list[tf.Tensor | tf.IndexedSlices]
        The results, in the order of ``tensors``.

    Examples
    --------
    >>> results = hvd.grouped_allreduce([tf.ones(2), tf.zeros(3)], op=hvd.Sum)
    >>> [y.numpy().tolist() for y in results]
    [[2.0, 2.0], [0.0, 0.0, 0.0]]
    """
    op = chosen_op(op, average)
    factors = prescale_factor, postscale_factor
    sparse = [tensor for tensor in tensors if isinstance(tensor, tf.IndexedSlices)]
    dense_tensors = [tensor for tensor in tensors if not isinstance(tensor, tf.IndexedSlices)]
    dense_results = iter(_reduced(dense_tensors, name, True, op, factors, compression, process_set, algorithm))
    sparse_results = iter(
        sparse_allreduce(sparse, op, factors, name and f"{name}.sparse", process_set) if sparse else ()
    )
    return [next(sparse_results if isinstance(tensor, tf.IndexedSlices) else dense_results) for tensor in tensors]


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
    """Reduces every rank's ``tensor``. Returns part r of the result on rank r of the set.

    The reduction is divided along the first dimension; the first ``tensor.shape[0] % size`` ranks
    get one more row. It is differentiable for ``Average`` and ``Sum``.

    Parameters
    ----------
    tensor : tf.Tensor | tf.Variable | array_like
        Has at least one dimension. This and the other arguments are as for :func:`allreduce`.

    Returns
    -------
    tf.Tensor
        This rank's rows of the reduction, of the same dtype.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or ops differ.
    ValueError
        The first argument has no dimensions.
    UnsupportedError
        The op is ``Adasum``.

    Examples
    --------
    >>> hvd.reducescatter(tf.ones((2, 3)), op=hvd.Sum).numpy().tolist()
    [[2.0, 2.0, 2.0]]
    """
    factors = prescale_factor, postscale_factor
    arguments = [tensor], name, False, core_op(op), factors, compression, process_set, algorithm
    return _reduced(*arguments, gradients.reducescatter)[0]


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
    """Reduces and scatters several tensors as :func:`reducescatter` does, in one operation.

    Parameters
    ----------
    tensors : Sequence[tf.Tensor]
        These and the other arguments are as for :func:`reducescatter`.

    Returns
    -------
    list[tf.Tensor]
        This rank's rows of each reduction.

    Examples
    --------
    >>> results = hvd.grouped_reducescatter([tf.ones(2), tf.ones((2, 2))], op=hvd.Sum)
    >>> [y.numpy().tolist() for y in results]
    [[2.0], [[2.0, 2.0]]]
    """
    factors = prescale_factor, postscale_factor
    arguments = tensors, name, True, core_op(op), factors, compression, process_set, algorithm
    return _reduced(*arguments, gradients.reducescatter)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Concatenates every rank's ``tensor`` along the first dimension in rank order.

    It is differentiable: each rank's gradient consists of its rows of the averaged gradient.

    Parameters
    ----------
    tensor : tf.Tensor | tf.Variable | array_like
        All dimensions except the first, and the dtype, are the same on every rank. A 0-dimensional
        tensor counts as one row.
    ignore_name_scope : bool
        Accepted because Horovod has it; not used.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    tf.Tensor
        A tensor of the same dtype.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, or dimensions other than the first, differ.

    Examples
    --------
    >>> hvd.allgather(tf.fill([1 + hvd.rank()], hvd.rank())).numpy().tolist()
    [0, 1, 1]
    """
    return gradients.allgather([tensor], name, False, process_set, algorithm)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> list[Any]:
    """Gathers several tensors as :func:`allgather` does, in one operation.

    Parameters
    ----------
    tensors : Sequence[tf.Tensor]
        As for :func:`allgather`, as are the other arguments.

    Returns
    -------
    list[tf.Tensor]
        The results, in the order of ``tensors``.

    Examples
    --------
    >>> mine = tf.constant([hvd.rank()])
    >>> [y.numpy().tolist() for y in hvd.grouped_allgather([mine, -mine])]
    [[0, 1], [0, -1]]
    """
    return gradients.allgather(tensors, name, True, process_set, algorithm) if tensors else []


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Returns the root's values on every rank.

    It is differentiable: the root's gradient is the average over the ranks, and the gradient
    of other ranks is zero.

    Parameters
    ----------
    tensor : tf.Tensor | tf.Variable | array_like
        Dtype and shape are the same on every rank.
    root_rank : int
        Global rank that provides the values.
    ignore_name_scope : bool
        Accepted because Horovod has it; not used.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    tf.Tensor
        A tensor of the same dtype and shape.

    Raises
    ------
    MismatchError
        On every rank, if dtypes, shapes or roots differ.
    ValueError
        The root is not in the process set.

    Examples
    --------
    >>> hvd.broadcast(tf.constant([hvd.rank()]), root_rank=1).numpy().tolist()
    [1]
    """
    return gradients.broadcast(tensor, root_rank, name, process_set, algorithm)


def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Assigns the root's values to variables.

    Parameters
    ----------
    variables : Sequence[tf.Variable]
        The same shapes, dtypes and order on all ranks.
    root_rank : int
        Global rank that provides the values.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    list
        The variables; in a graph, the assign ops to run.

    Examples
    --------
    >>> weight = tf.Variable([float(hvd.rank())])
    >>> hvd.broadcast_([weight], root_rank=1)[0] is weight, weight.numpy().tolist()
    (True, [1.0])
    """
    values = [tf.convert_to_tensor(variable) for variable in variables]
    received = operations.broadcast(values, root_rank, name, True, process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, received, strict=True)]
    return list(variables) if tf.executing_eagerly() else assigned


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Sends part q of ``tensor`` to rank q of the set, and returns the received parts.

    It is differentiable: the rows of the gradient are sent back.

    Parameters
    ----------
    tensor : tf.Tensor | tf.Variable | array_like
        Parts are consecutive rows along the first dimension. The dtype and the other dimensions are
        the same on every rank.
    splits : Sequence[int] | tf.Tensor | None
        Number of rows to send to each rank, int32 or int64, with a sum of at most the first
        dimension; None: equal parts.
    ignore_name_scope : bool
        Accepted because Horovod has it; not used.
    name : str | None
        Name of the operation. Calls with the same name on different ranks belong together.
    process_set : ProcessSet
        The ranks that take part.
    algorithm : str | None
        Name of the algorithm; None: chosen automatically.

    Returns
    -------
    tf.Tensor | tuple[tf.Tensor, tf.Tensor]
        The received parts in rank order; with ``splits``, the pair (tensor, number of rows from
        each rank as int32).

    Raises
    ------
    MismatchError
        On every rank, if dtypes, or dimensions other than the first, differ.
    ValueError
        ``splits`` or the first dimension does not fit the number of ranks.

    Examples
    --------
    >>> rows = hvd.alltoall(tf.constant([0, 1]))       # row q is sent to rank q
    >>> rows.numpy().tolist() == [hvd.rank()] * 2
    True
    >>> rows, counts = hvd.alltoall(tf.constant([5, 6, 7]), splits=[1, 2])
    >>> counts.numpy().tolist() == [1 + hvd.rank()] * 2
    True
    """
    results = gradients.alltoall(tensor, splits, name, process_set, algorithm)
    return results[0] if splits is None else tuple(results)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until every rank of the set has called it.

    Parameters
    ----------
    process_set : ProcessSet
        The ranks that wait for each other.

    Examples
    --------
    >>> hvd.barrier()
    """
    operations.barrier(process_set)


def join(process_set: ProcessSet = global_process_set) -> int:
    """Declares that this rank has no more data, and blocks until all ranks have joined.

    Until then, this rank takes part, without data, in the operations of other ranks; see
    :func:`ringcomm.join`.

    Parameters
    ----------
    process_set : ProcessSet
        This rank takes part in the operations of this set.

    Returns
    -------
    int
        Global rank of the rank that joined last, identical on all ranks.

    Examples
    --------
    >>> if hvd.rank() == 0:  # rank 0 has one more batch
    ...     batch = hvd.allreduce(tf.ones(2), name="last batch")
    >>> hvd.join() in range(hvd.size())
    True
    """
    return joining.join(process_set=process_set)


# ---- rank and size as ops: their values are read when they run -----------------------------------
def _value_at_run_time(function: Any, name: str | None) -> Any:
    with tf.name_scope(name or "ringcomm"):
        value = tf.numpy_function(lambda: np.int32(function()), [], tf.int32, stateful=True)
    value.set_shape([])
    return value


def _set_of(process_set_id: int) -> ProcessSet:
    for process_set in global_process_set.session().sets:
        if process_set.process_set_id == process_set_id:
            return process_set
    raise ValueError(f"process set {process_set_id} does not exist")


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`size` of a process set each time it runs.

    Parameters
    ----------
    process_set_id : int
        Number of the set; 0: all ranks.
    name : str | None
        Name scope of the op.

    Raises
    ------
    ValueError
        The set does not exist when the op runs; in a graph, TensorFlow's error.

    Examples
    --------
    >>> int(tf.function(hvd.size_op)())
    2
    """
    return _value_at_run_time(lambda: _set_of(process_set_id).size(), name)


def rank_op(name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`rank` each time it runs.

    Examples
    --------
    >>> int(tf.function(hvd.rank_op)()) == hvd.rank()
    True
    """
    return _value_at_run_time(runtime.rank, name)


def local_size_op(name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`local_size` each time it runs.

    Examples
    --------
    >>> int(tf.function(hvd.local_size_op)()) == hvd.local_size()
    True
    """
    return _value_at_run_time(runtime.local_size, name)


def local_rank_op(name: str | None = None) -> Any:
    """Returns an int32 op that evaluates :func:`local_rank` each time it runs.

    Examples
    --------
    >>> int(tf.function(hvd.local_rank_op)()) == hvd.local_rank()
    True
    """
    return _value_at_run_time(runtime.local_rank, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns an int32 op that evaluates whether a process set includes this rank.

    Parameters
    ----------
    process_set_id : int
        Number of the set; 0: all ranks.
    name : str | None
        Name scope of the op.

    Returns
    -------
    tf.Tensor
        1 if the set includes this rank, 0 if not, -1 before ``init``, -2 for an unknown set.

    Examples
    --------
    >>> int(tf.function(hvd.process_set_included_op)())
    1
    """

    def included() -> int:
        if not runtime.is_initialized():
            return -1
        try:
            return int(_set_of(process_set_id).included())
        except ValueError:
            return -2

    return _value_at_run_time(included, name)


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
