"""Differentiable collectives, to any order, with Horovod's gradients.

The gradient of an all-reduce is reduced with the same op. For broadcast and allgather, gradients
are averaged over the ranks.
`mpi_ops.py` uses these functions for the public collectives; :mod:`ringcomm._src.torch.autograd` is
PyTorch's counterpart.
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


def _with_suffix(name: str | Sequence[str] | None, suffix: str) -> Any:
    if name is None:
        return None
    return f"{name}.{suffix}" if isinstance(name, str) else [f"{tensor_name}.{suffix}" for tensor_name in name]


def _gradient_name(name: str | Sequence[str] | None) -> Any:
    """Returns the name of the backward collective."""
    return _with_suffix(name, "gradient")


def _with_gradient(
    forward: Callable[..., list[Any]], backward: Callable[..., list[Any]], tensors: Sequence[Any]
) -> list[Any]:
    """Runs `forward` with the gradient `backward(inputs, results, gradients)`.

    `backward` calls functions of this module, so it is differentiable too.
    """
    inputs = operations.dense(tensors)
    if not inputs or (tf.executing_eagerly() and not record.could_possibly_record()):
        return forward(inputs)
    _refuse_tangents(inputs)

    @tf.custom_gradient
    def run(*arguments: Any) -> Any:
        results = forward(arguments)

        def gradient(*gradients: Any) -> Any:
            with tf.name_scope("gradient"):
                return backward(arguments, results, [tf.convert_to_tensor(value) for value in gradients])

        return results, gradient

    return list(run(*inputs))


def _refuse_tangents(tensors: Sequence[Any]) -> None:
    """Raises NotImplementedError if a ForwardAccumulator watches a tensor.

    TensorFlow would compute tangents by transposing the gradients. These tangents would be wrong,
    because gradients are averaged over the ranks and derivatives are not.
    """
    if forwardprop_util.pack_tangents(tensors).indices:
        raise NotImplementedError(
            "collectives have no forward-mode derivatives (tf.autodiff.ForwardAccumulator): use tf.GradientTape, or "
            "two nested tapes for Hessian-vector products"
        )


def gathered(tensor: Any, name: Any, process_set: ProcessSet) -> Any:
    """Stacks the tensors of all ranks. Gradients are summed over the ranks, not averaged."""
    return _with_gradient(
        lambda inputs: operations.allgather([inputs[0][None]], name, False, process_set),
        lambda _inputs, _results, gradients: [
            allreduce(gradients, _gradient_name(name), False, SUM, process_set)[0][process_set.rank()]
        ],
        [tensor],
    )[0]


def allreduce(
    tensors: Sequence[Any], name: Any, grouped: bool, reduction: Reduce, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """Reduces tensors over the ranks. The gradient is reduced with the same op.

    Min, Max and Product have the true derivative instead. For Min and Max, the ranks that have the
    extreme value share the sum of the ranks' gradients. For Product, the sum is multiplied by the
    product of the other ranks' tensors.
    """

    def backward(inputs: Any, results: Any, gradients: list[Any]) -> list[Any]:
        if reduction.op not in (Min, Max, Product):
            return allreduce(gradients, _gradient_name(name), grouped, reduction, process_set)
        sums = allreduce(gradients, _gradient_name(name), grouped, SUM, process_set)
        if reduction.op == Product:
            factors = [
                _product_of_others(tensor, _with_suffix(name, f"factors.{i}"), process_set)
                for i, tensor in enumerate(inputs)
            ]
            return [gradient * factor for gradient, factor in zip(sums, factors, strict=True)]
        masks = [tf.cast(tensor == result, tensor.dtype) for tensor, result in zip(inputs, results, strict=True)]
        ties = operations.allreduce(masks, _with_suffix(name, "ties"), grouped, SUM, process_set)
        shares = [tf.stop_gradient(tf.math.divide_no_nan(mask, n)) for mask, n in zip(masks, ties, strict=True)]
        return [gradient * share for gradient, share in zip(sums, shares, strict=True)]

    return _with_gradient(
        lambda inputs: operations.allreduce(inputs, name, grouped, reduction, process_set, algorithm), backward, tensors
    )


def _product_of_others(tensor: Any, name: Any, process_set: ProcessSet) -> Any:
    """Returns the product of the other ranks' tensors. A division would fail for zeros."""
    rows, rank = gathered(tensor, name, process_set), process_set.rank()
    return tf.reduce_prod(tf.concat([rows[:rank], rows[rank + 1 :]], 0), 0)


def broadcast(tensor: Any, root_rank: int, name: Any, process_set: ProcessSet, algorithm: Any = None) -> Any:
    """Broadcasts the root's tensor.

    The root's gradient is the average over the ranks; the gradient of other ranks is zero.
    """

    def backward(_inputs: Any, _results: Any, gradients: list[Any]) -> list[Any]:
        means = allreduce(gradients, _gradient_name(name), False, AVERAGE, process_set)
        is_root = process_set.rank() == process_set.ranks.index(root_rank)
        # Not plain zeros, which are constants: second derivatives need the all-reduce on all ranks.
        return [tf.where(is_root, mean, tf.zeros_like(mean)) for mean in means]

    return _with_gradient(
        lambda inputs: operations.broadcast(inputs, root_rank, name, False, process_set, algorithm), backward, [tensor]
    )[0]


def allgather(
    tensors: Sequence[Any], name: Any, grouped: bool, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """Gathers tensors along the first dimension.

    Each rank's gradient consists of its rows of the averaged gradient.
    """

    def backward(inputs: Any, _results: Any, gradients: list[Any]) -> list[Any]:
        means = allreduce(gradients, _gradient_name(name), grouped, AVERAGE, process_set)
        row_counts = tf.stack([tf.shape(tensor)[0] if tensor.shape.rank != 0 else 1 for tensor in inputs])
        first = tf.reduce_sum(_rows_of(row_counts, _with_suffix(name, "rows"), process_set)[: process_set.rank()], 0)
        parts = [mean[first[i] : first[i] + row_counts[i]] for i, mean in enumerate(means)]
        return [tf.reshape(part, tf.shape(tensor)) for part, tensor in zip(parts, inputs, strict=True)]

    return _with_gradient(
        lambda inputs: operations.allgather(inputs, name, grouped, process_set, algorithm), backward, tensors
    )


def _rows_of(row_counts: Any, name: Any, process_set: ProcessSet) -> Any:
    """Returns all row counts, of shape [ranks, counts]; zeros for ranks that have joined."""
    first = name if name is None or isinstance(name, str) else name[0]
    counts = tf.scatter_nd([[process_set.rank()]], row_counts[None], [process_set.size(), tf.size(row_counts)])
    return operations.allreduce([counts], first, False, SUM, process_set)[0]


def reducescatter(
    tensors: Sequence[Any], name: Any, grouped: bool, reduction: Reduce, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """Reduces and scatters tensors.

    The gradient consists of the gathered gradients, multiplied by the factors and, for Sum, by the
    number of ranks.
    """

    def backward(inputs: Any, _results: Any, gradients: list[Any]) -> list[Any]:
        if reduction.op not in (Sum, Average):
            raise NotImplementedError(
                f"reducescatter with {reduction.op.name} has no gradient: "
                "use Average or Sum, or take rows of an allreduce"
            )
        factor = reduction.pre * reduction.post * (process_set.size() if reduction.op == Sum else 1)
        scaled = (
            gradients if factor == 1 else [gradient * tf.constant(factor, gradient.dtype) for gradient in gradients]
        )
        gathered_gradients = allgather(scaled, _gradient_name(name), grouped, process_set)
        return [
            tf.reshape(gradient, tf.shape(source)) for gradient, source in zip(gathered_gradients, inputs, strict=True)
        ]

    return _with_gradient(
        lambda inputs: operations.reducescatter(inputs, name, grouped, reduction, process_set, algorithm),
        backward,
        tensors,
    )


def alltoall(tensor: Any, splits: Any, name: Any, process_set: ProcessSet, algorithm: Any = None) -> list[Any]:
    """Exchanges rows. Returns [received rows]; with splits, also the row counts from each rank.

    The rows of the gradient are sent back to the ranks that sent the tensor's rows.
    """
    counts: list[Any] = []  # rows from each rank, if splits are given

    def forward(inputs: Any) -> list[Any]:
        rows, *counts[:] = operations.alltoall(inputs[0], splits, name, process_set, algorithm)
        return [rows]

    def backward(inputs: Any, _results: Any, gradients: list[Any]) -> list[Any]:
        rows = tf.shape(inputs[0])
        if splits is None:
            received = _rows_of(rows[:1], _with_suffix(name, "rows"), process_set)[:, 0] // process_set.size()
        else:
            received = counts[0]
        input_gradient = alltoall(gradients[0], received, _gradient_name(name), process_set)[0]
        uncovered = tf.concat(
            [[rows[0] - tf.shape(input_gradient)[0]], rows[1:]], 0
        )  # rows that the splits do not cover
        return [tf.concat([input_gradient, tf.zeros(uncovered, input_gradient.dtype)], 0)]

    return [*_with_gradient(forward, backward, [tensor]), *counts]
