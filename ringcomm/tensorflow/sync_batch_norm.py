"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ringcomm.ops import Sum
from ringcomm.process_sets import ProcessSet, global_process_set
from ringcomm.sites import Reduce
from ringcomm.tensorflow import gradients


@keras.saving.register_keras_serializable("ringcomm")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """Normalises by mean and variance over all ranks' batches, which may be of different sizes.

    A drop-in for ``keras.layers.BatchNormalization`` on the TensorFlow backend. Gradients flow through the shared
    statistics. In inference, on one rank, and on ranks outside the process set it is the ordinary batch normalisation.
    Ranks must run the layer equally often, in one order.

    Args:
        process_set: the ranks that share statistics.

    The other arguments are those of ``keras.layers.BatchNormalization``.
    """

    def __init__(self, *args: Any, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process_set = process_set

    def _moments(self, inputs: Any, mask: Any) -> Any:
        if not self.process_set.included() or self.process_set.size() == 1:
            return super()._moments(inputs, mask)
        inputs = tf.convert_to_tensor(inputs)
        mine = tf.ones_like(inputs) if mask is None else self._mask_like(mask, inputs)
        axes = self._reduction_axes
        mean, squares, count = (tf.reduce_sum(one, axes) for one in (inputs * mine, inputs * inputs * mine, mine))
        summed = gradients.allreduce(
            [tf.stack([mean, squares, count])], f"{self.path}.statistics", False, Reduce(Sum), self.process_set
        )[0]
        # What flows back through a sum is summed over the ranks: each has a loss of its own, and their sum is what
        # the statistics' gradient is of.
        total, total_squares, values = tf.unstack(summed, 3)
        mean = total / values
        return mean, tf.maximum(total_squares / values - mean * mean, 0)

    @staticmethod
    def _mask_like(mask: Any, inputs: Any) -> Any:
        mask = tf.cast(mask, inputs.dtype)
        return tf.broadcast_to(mask[..., None] if mask.shape.rank < inputs.shape.rank else mask, tf.shape(inputs))
