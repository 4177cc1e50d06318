"""Optimizers that reduce gradients over all ranks before each step, for ``ringcomm.tensorflow``.

This module wraps optimizers of TensorFlow 1, and passes Keras' optimizers to
:mod:`ringcomm.keras`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringcomm._src.base.ops import Average
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.tensorflow.aggregation import LocalAggregation
from ringcomm._src.tensorflow.compression import Compression
from ringcomm._src.tensorflow.reduction import GradientReduction


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """A wrapper around an optimizer of TensorFlow 1 that reduces gradients after computing them."""

    def __init__(
        self, optimizer: Any, name: str, use_locking: bool, reduction: GradientReduction, aggregation: Any
    ) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer, self._reduction, self._aggregation = optimizer, reduction, aggregation

    def register_local_var(self, variable: Any) -> None:
        """Excludes the gradient of this variable from the reduction."""
        self._reduction.keep_local(variable)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Computes gradients with the wrapped optimizer, then reduces them over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return pairs
        gradients, variables = zip(*pairs, strict=True)
        reduce = self._reduction if self._aggregation is None else self._aggregation.compute
        return list(zip(reduce(gradients, variables), variables, strict=True))

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, *args, **kwargs)

        return (
            apply()
            if self._aggregation is None
            else self._aggregation.apply(apply, [gradient for gradient, _ in pairs])
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    algorithm: str | None = None,
) -> Any:
    """Returns an optimizer that applies gradients reduced over all ranks.

    Parameters
    ----------
    optimizer : tf.compat.v1.train.Optimizer | keras.optimizers.Optimizer
        The optimizer to wrap. A Keras optimizer is passed to
        :func:`ringcomm.keras.DistributedOptimizer`, which changes it in place.
    name, use_locking
        Arguments of an optimizer of TensorFlow 1.
    backward_passes_per_step : int
        Number of backward passes per step. A rank adds up their gradients, then reduces the sum.
    average_aggregated_gradients : bool
        Divide the sum of these passes by their number.

    Returns
    -------
    tf.compat.v1.train.Optimizer | keras.optimizers.Optimizer
        An optimizer with the methods of ``optimizer``.

    Raises
    ------
    ValueError
        ``backward_passes_per_step`` is not positive, or arguments contradict each other.

    Notes
    -----
    The other arguments are those of :func:`DistributedGradientTape`.

    Examples
    --------
    >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5))
    >>> weight = tf.keras.Variable([1.0])
    >>> optimizer.apply([tf.constant([float(hvd.rank())])], [weight])      # mean gradient: 0.5
    >>> weight.numpy().tolist()
    [0.75]
    """
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from ringcomm._src.keras import optimizer as keras  # imports Keras only when it is used

        options: tuple[Any, ...] = compression, sparse_as_dense, gradient_predivide_factor, op
        options += backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set
        options += scale_local_gradients, algorithm
        return keras.DistributedOptimizer(optimizer, name, device_dense, device_sparse, *options)
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
    full_name = name or f"Distributed{type(optimizer).__name__}"
    grouping = num_groups, groups, process_set, scale_local_gradients, algorithm
    reduction = GradientReduction(full_name, op, compression, sparse_as_dense, gradient_predivide_factor, *grouping)
    passes = backward_passes_per_step
    aggregation = LocalAggregation(passes, average_aggregated_gradients, reduction) if passes > 1 else None
    return _DistributedOptimizer(optimizer, full_name, use_locking, reduction, aggregation)
