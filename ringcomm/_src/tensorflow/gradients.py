"""Differentiable collectives, to any order, with Horovod's gradients.

A backward pass averages the incoming gradients over the ranks; reducescatter with Sum sums them. `mpi_ops.py` uses
these functions for the public collectives; :mod:`ringcomm._src.torch.autograd` is PyTorch's counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record

from ringcomm._src.base.ops import Average, Max, Min, Product, Sum
from ringcomm._src.named.graph_ops import Reduce
from ringcomm._src.named.process_sets import ProcessSet
from ringcomm._src.tensorflow import operations

AVERAGE, SUM = Reduce(Average), Reduce(Sum)


def _named(name: str | Sequence[str] | None, what: str) -> Any:
    if name is None:
        return None
    return f"{name}.{what}" if isinstance(name, str) else [f"{one}.{what}" for one in name]


def _back(name: str | Sequence[str] | None) -> Any:
    """Returns the name of the backward collective."""
    return _named(name, "gradient")


def _with_gradient(
    forward: Callable[..., list[Any]], backward: Callable[..., list[Any]], tensors: Sequence[Any]
) -> list[Any]:
    """Runs `forward` with the gradient `backward(inputs, results, gradients)`.

    `backward` calls functions of this module, so it is differentiable too.
    """
    given = operations.dense(tensors)
    if not given or (tf.executing_eagerly() and not record.could_possibly_record()):
        return forward(given)
    _refuse_tangents(given)

    @tf.custom_gradient
    def run(*inputs: Any) -> Any:
        results = forward(inputs)

        def gradient(*gradients: Any) -> Any:
            with tf.name_scope("gradient"):
                return backward(inputs, results, [tf.convert_to_tensor(one) for one in gradients])

        return results, gradient

    return list(run(*given))


def _refuse_tangents(tensors: Sequence[Any]) -> None:
    """Raises NotImplementedError if a ForwardAccumulator watches a tensor.

    TensorFlow would compute tangents as transposed gradients. These are averaged over the ranks, unlike the derivative.
    """
    if forwardprop_util.pack_tangents(tensors).indices:
        raise NotImplementedError(
            "there are no forward-mode derivatives (tf.autodiff.ForwardAccumulator) of collectives: use "
            "tf.GradientTape, twice for products with a Hessian"
        )


def gathered(tensor: Any, name: Any, process_set: ProcessSet) -> Any:
    """Stacks the tensors of all ranks. Sums gradients over the ranks, unlike :func:`allgather`, which averages."""
    return _with_gradient(
        lambda given: operations.allgather([given[0][None]], name, False, process_set),
        lambda _inputs, _results, given: [
            allreduce(given, _back(name), False, SUM, process_set)[0][process_set.rank()]
        ],
        [tensor],
    )[0]


def allreduce(
    tensors: Sequence[Any], name: Any, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """Reduces tensors over the ranks. The gradient is reduced with the same op.

    Min, Max and Product have the true derivative instead. For Min and Max, the ranks that have the extreme value share
    the sum of the ranks' gradients. For Product, the sum is multiplied by the product of the other ranks' tensors.
    """

    def backward(inputs: Any, results: Any, given: list[Any]) -> list[Any]:
        if how.op not in (Min, Max, Product):
            return allreduce(given, _back(name), grouped, how, process_set)
        sums = allreduce(given, _back(name), grouped, SUM, process_set)
        if how.op == Product:
            factors = [_of_others(one, _named(name, f"factors.{i}"), process_set) for i, one in enumerate(inputs)]
            return [one * factor for one, factor in zip(sums, factors, strict=True)]
        holds = [tf.cast(one == result, one.dtype) for one, result in zip(inputs, results, strict=True)]
        ties = operations.allreduce(holds, _named(name, "ties"), grouped, SUM, process_set)
        shares = [tf.stop_gradient(tf.math.divide_no_nan(one, n)) for one, n in zip(holds, ties, strict=True)]
        return [one * share for one, share in zip(sums, shares, strict=True)]

    return _with_gradient(
        lambda given: operations.allreduce(given, name, grouped, how, process_set, algorithm), backward, tensors
    )


def _of_others(tensor: Any, name: Any, process_set: ProcessSet) -> Any:
    """Returns the product of the other ranks' tensors. Uses no division, so that zeros give correct results."""
    whole, me = gathered(tensor, name, process_set), process_set.rank()
    return tf.reduce_prod(tf.concat([whole[:me], whole[me + 1 :]], 0), 0)


def broadcast(tensor: Any, root_rank: int, name: Any, process_set: ProcessSet, algorithm: Any = None) -> Any:
    """Broadcasts the root's tensor. The root's gradient is the average over the ranks; other ranks' is zero."""

    def backward(_inputs: Any, _results: Any, given: list[Any]) -> list[Any]:
        means = allreduce(given, _back(name), False, AVERAGE, process_set)
        here = process_set.rank() == process_set.ranks.index(root_rank)
        # Plain zeros would be constants: a second derivative must reach the all-reduce on all ranks.
        return [tf.where(here, one, tf.zeros_like(one)) for one in means]

    return _with_gradient(
        lambda given: operations.broadcast(given, root_rank, name, False, process_set, algorithm), backward, [tensor]
    )[0]


def allgather(
    tensors: Sequence[Any], name: Any, grouped: bool, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """Gathers tensors along the first dimension. Each rank's gradient is its own rows of the averaged gradient."""

    def backward(inputs: Any, _results: Any, given: list[Any]) -> list[Any]:
        means = allreduce(given, _back(name), grouped, AVERAGE, process_set)
        mine = tf.stack([tf.shape(one)[0] if one.shape.rank != 0 else 1 for one in inputs])
        first = tf.reduce_sum(_rows_of(mine, _named(name, "rows"), process_set)[: process_set.rank()], 0)
        parts = [mean[first[i] : first[i] + mine[i]] for i, mean in enumerate(means)]
        return [tf.reshape(part, tf.shape(one)) for part, one in zip(parts, inputs, strict=True)]

    return _with_gradient(
        lambda given: operations.allgather(given, name, grouped, process_set, algorithm), backward, tensors
    )


def _rows_of(mine: Any, name: Any, process_set: ProcessSet) -> Any:
    """Returns the row counts of every rank, of shape [ranks, counts], with zeros for ranks that have joined."""
    first = name if name is None or isinstance(name, str) else name[0]
    counts = tf.scatter_nd([[process_set.rank()]], mine[None], [process_set.size(), tf.size(mine)])
    return operations.allreduce([counts], first, False, SUM, process_set)[0]


def reducescatter(
    tensors: Sequence[Any], name: Any, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """Reduces and scatters tensors.

    The gradient is the gathered gradients, multiplied by the factors and, for Sum, by the number of ranks.
    """

    def backward(inputs: Any, _results: Any, given: list[Any]) -> list[Any]:
        if how.op not in (Sum, Average):
            raise NotImplementedError(
                f"there is no gradient of reducescatter with {how.op.name}: use Average or Sum, or rows of allreduce"
            )
        factor = how.pre * how.post * (process_set.size() if how.op == Sum else 1)
        scaled = given if factor == 1 else [one * tf.constant(factor, one.dtype) for one in given]
        whole = allgather(scaled, _back(name), grouped, process_set)
        return [tf.reshape(one, tf.shape(source)) for one, source in zip(whole, inputs, strict=True)]

    return _with_gradient(
        lambda given: operations.reducescatter(given, name, grouped, how, process_set, algorithm), backward, tensors
    )


def alltoall(tensor: Any, splits: Any, name: Any, process_set: ProcessSet, algorithm: Any = None) -> list[Any]:
    """Exchanges rows. Returns [rows received], and with splits [rows received, row count from each rank].

    The rows of the gradient are sent back to the ranks that sent the tensor's rows.
    """
    counts: list[Any] = []  # rows from each rank, if splits are given

    def forward(given: Any) -> list[Any]:
        rows, *counts[:] = operations.alltoall(given[0], splits, name, process_set, algorithm)
        return [rows]

    def backward(inputs: Any, _results: Any, given: list[Any]) -> list[Any]:
        rows = tf.shape(inputs[0])
        if splits is None:
            received = _rows_of(rows[:1], _named(name, "rows"), process_set)[:, 0] // process_set.size()
        else:
            received = counts[0]
        back = alltoall(given[0], received, _back(name), process_set)[0]
        left_out = tf.concat([[rows[0] - tf.shape(back)[0]], rows[1:]], 0)  # rows that the splits do not cover
        return [tf.concat([back, tf.zeros(left_out, back.dtype)], 0)]

    return [*_with_gradient(forward, backward, [tensor]), *counts]
