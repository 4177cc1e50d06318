"""Local gradient aggregation for optimizers of TensorFlow 1: one reduction for several passes.

`optimizer.py` uses it for ``backward_passes_per_step``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class LocalAggregation:
    """An accumulator of gradients; `reduce` gets their sums or means after `passes` passes."""

    def __init__(self, passes: int, average: bool, reduce: Callable[[Sequence[Any], Sequence[Any]], list[Any]]) -> None:
        self._passes, self._average, self._reduce = passes, average, reduce
        self._counter: Any = None
        self._sums: dict[int, Any] = {}

    def _prepare(self, gradients: Sequence[Any]) -> None:
        make = tf.compat.v1.get_variable
        if self._counter is None:
            with tf.compat.v1.variable_scope("ringcomm_aggregation", reuse=tf.compat.v1.AUTO_REUSE):
                self._counter = make("counter", [], tf.int32, tf.compat.v1.zeros_initializer(), trainable=False)
                for i, gradient in enumerate(gradients):
                    if gradient is not None:
                        zeros = tf.compat.v1.zeros_initializer()
                        self._sums[i] = make(f"sum_{i}", gradient.shape, gradient.dtype, zeros, trainable=False)

    def compute(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced gradients in the last pass of a step, else partial sums.

        :meth:`apply` ignores partial sums.
        """
        dense = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        self._prepare(dense)
        added = {i: total.assign_add(dense[i]) for i, total in self._sums.items()}
        with tf.control_dependencies(list(added.values())):
            pass_number = self._counter.assign_add(1)
        present = sorted(added)

        def reduce_sums() -> list[Any]:
            sums = [added[i] / self._passes if self._average else tf.identity(added[i]) for i in present]
            reduced = self._reduce(sums, [variables[i] for i in present])
            with tf.control_dependencies(reduced):
                cleared = [self._sums[i].assign(tf.zeros_like(self._sums[i])) for i in present]
            with tf.control_dependencies(cleared):
                return [tf.identity(gradient) for gradient in reduced]

        with tf.control_dependencies([pass_number]):
            outputs = tf.cond(
                tf.equal(pass_number, self._passes), reduce_sums, lambda: [tf.identity(added[i]) for i in present]
            )
        results: list[Any] = [None] * len(dense)
        for i, output in zip(present, outputs if isinstance(outputs, list | tuple) else [outputs], strict=True):
            results[i] = output
        return results

    def apply(self, apply: Callable[[], Any], gradients: Sequence[Any]) -> Any:
        """Applies the gradients if this pass was the last of a step."""

        def step() -> Any:
            with tf.control_dependencies([apply()]), tf.control_dependencies([self._counter.assign(0)]):
                return tf.no_op()

        with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
            return tf.cond(tf.equal(self._counter.read_value(), self._passes), step, tf.no_op)
