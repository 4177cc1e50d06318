"""Collectives that gradients flow through, with Horovod's gradients: what flows back is averaged over the ranks
(through a sum of reducescatter: summed), as in :mod:`ringcomm.torch.autograd`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringcomm.ops import Average, Sum
from ringcomm.process_sets import ProcessSet
from ringcomm.sites import Reduce
from ringcomm.tensorflow import operations

AVERAGE = Reduce(Average)


def _back(name: str | Sequence[str] | None) -> Any:
    """The name of what flows back."""
    if name is None:
        return None
    return f"{name}.gradient" if isinstance(name, str) else [f"{one}.gradient" for one in name]


def _with_gradient(
    forward: Callable[..., list[Any]], backward: Callable[..., list[Any]], tensors: Sequence[Any]
) -> list[Any]:
    """`backward` of (inputs, results, gradients)."""

    @tf.custom_gradient
    def run(*inputs: Any) -> Any:
        results = forward(inputs)

        def gradient(*gradients: Any) -> Any:
            with tf.name_scope("gradient"):
                return backward(inputs, results, [tf.convert_to_tensor(one) for one in gradients])

        return results, gradient

    return list(run(*operations.dense(tensors)))


def allreduce(
    tensors: Sequence[Any], name: Any, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """The gradient is reduced as the tensor was."""
    return _with_gradient(
        lambda given: operations.allreduce(given, name, grouped, how, process_set, algorithm),
        lambda _inputs, _results, given: operations.allreduce(given, _back(name), grouped, how, process_set),
        tensors,
    )


def broadcast(tensor: Any, root_rank: int, name: Any, process_set: ProcessSet, algorithm: Any = None) -> Any:
    """The gradient is averaged and goes to the root; elsewhere it is zero."""

    def backward(_inputs: Any, _results: Any, given: list[Any]) -> list[Any]:
        means = operations.allreduce(given, _back(name), False, AVERAGE, process_set)
        here = process_set.rank() == process_set.ranks.index(root_rank)
        return means if here else [tf.zeros_like(one) for one in means]

    return _with_gradient(
        lambda given: operations.broadcast(given, root_rank, name, False, process_set, algorithm), backward, [tensor]
    )[0]


def allgather(
    tensors: Sequence[Any], name: Any, grouped: bool, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """The gradient is averaged; each rank takes the rows that it gave."""

    def backward(inputs: Any, _results: Any, given: list[Any]) -> list[Any]:
        means = operations.allreduce(given, _back(name), grouped, AVERAGE, process_set)
        mine = tf.stack([tf.shape(one)[0] if one.shape.rank != 0 else 1 for one in inputs])
        counts_name = None if name is None else f"{name if isinstance(name, str) else name[0]}.rows"
        rows = operations.allgather([mine[None]], counts_name, False, process_set)[0]
        first = tf.reduce_sum(rows[: process_set.rank()], 0)
        parts = [mean[first[i] : first[i] + mine[i]] for i, mean in enumerate(means)]
        return [tf.reshape(part, tf.shape(one)) for part, one in zip(parts, inputs, strict=True)]

    return _with_gradient(
        lambda given: operations.allgather(given, name, grouped, process_set, algorithm), backward, tensors
    )


def reducescatter(
    tensors: Sequence[Any], name: Any, grouped: bool, how: Reduce, process_set: ProcessSet, algorithm: Any = None
) -> list[Any]:
    """The gradients are gathered, and scaled: by the factors given, and for a sum by the number of ranks."""

    def backward(inputs: Any, _results: Any, given: list[Any]) -> list[Any]:
        factor = how.pre * how.post * (process_set.size() if how.op == Sum else 1)
        scaled = given if factor == 1 else [one * tf.constant(factor, one.dtype) for one in given]
        whole = operations.allgather(scaled, _back(name), grouped, process_set)
        return [tf.reshape(one, tf.shape(source)) for one, source in zip(whole, inputs, strict=True)]

    return _with_gradient(
        lambda given: operations.reducescatter(given, name, grouped, how, process_set, algorithm), backward, tensors
    )


def alltoall(tensor: Any, splits: Any, name: Any, process_set: ProcessSet, algorithm: Any = None) -> list[Any]:
    """The gradient's rows go back where the tensor's rows came from. [rows, and with splits how many of each rank]"""

    @tf.custom_gradient
    def run(given: Any) -> Any:
        results = operations.alltoall(given, splits, name, process_set, algorithm)

        def gradient(*gradients: Any) -> Any:
            with tf.name_scope("gradient"):
                received = None if splits is None else results[1]
                back = operations.alltoall(gradients[0], received, _back(name), process_set)[0]
                left_out = tf.shape(given)[0] - tf.shape(back)[0]  # rows that the splits left out
                zeros = tf.zeros(tf.concat([[left_out], tf.shape(given)[1:]], 0), given.dtype)
                return tf.concat([back, zeros], 0) if splits is not None else back

        return results, gradient

    return list(run(tf.convert_to_tensor(tensor)))
