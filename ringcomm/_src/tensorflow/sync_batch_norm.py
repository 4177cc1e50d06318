"""A Keras layer of batch normalisation with statistics over the batches of all ranks.

`ringcomm.tensorflow` exports it as ``SyncBatchNormalization``.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.tensorflow import gradients
from ringcomm._src.training.gradient_lists import unnumbered


@keras.saving.register_keras_serializable("ringcomm")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """A layer of batch normalisation with mean and variance over all ranks' batches.

    It replaces ``keras.layers.BatchNormalization`` on the TensorFlow backend. Batches may have
    different sizes. Gradients flow through the shared statistics. In inference, on one rank, and on
    ranks outside the process set it is ordinary batch normalisation. Ranks must run the layer the
    same number of times, in the same order.

    Parameters
    ----------
    process_set : ProcessSet
        The ranks that share statistics. A configuration stores the list of ranks.
    fused : bool | None
        Accepted because Horovod has it; must be False.
    args, kwargs : Any
        Arguments of ``keras.layers.BatchNormalization``.

    Raises
    ------
    ValueError
        ``fused`` is True or None; or a configuration lists ranks that are no process set of this
        job.

    Notes
    -----
    Source: Chan et al. (1979), "Updating formulae and a pairwise algorithm for computing sample
    variances".

    Examples
    --------
    >>> layer = hvd.SyncBatchNormalization(momentum=0.0)
    >>> y = layer(tf.constant([[2.0 * hvd.rank()]]), training=True)        # batches [0] and [2]
    >>> layer.moving_mean.numpy().tolist()
    [1.0]
    """

    def __init__(
        self, *args: Any, process_set: ProcessSet = global_process_set, fused: bool | None = False, **kwargs: Any
    ) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True")
        super().__init__(*args, **kwargs)
        self.process_set = process_set

    def get_config(self) -> dict[str, Any]:
        ranks = None if self.process_set is global_process_set else list(self.process_set.ranks)
        return {**super().get_config(), "process_set": ranks}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SyncBatchNormalization:
        ranks = config.get("process_set")
        process_sets = () if ranks is None else global_process_set.session().sets
        process_set = (
            next((known for known in process_sets if known.ranks == ranks), None) if ranks else global_process_set
        )
        if process_set is None:
            raise ValueError(
                f"SyncBatchNormalization: no process set has the ranks {ranks}; call add_process_set({ranks})"
            )
        return cls(**{**config, "process_set": process_set})

    def _moments(self, inputs: Any, mask: Any) -> Any:
        if not self.process_set.included() or self.process_set.size() == 1:
            return super()._moments(inputs, mask)
        inputs, axes = tf.convert_to_tensor(inputs), self._reduction_axes
        weights = tf.ones_like(inputs) if mask is None else self._mask_like(mask, inputs)
        count = tf.reduce_sum(weights, axes)
        mean = tf.math.divide_no_nan(tf.reduce_sum(inputs * weights, axes), count)
        centred = inputs - self._broadcast_over(mean, axes)
        missed = tf.math.divide_no_nan(tf.reduce_sum(centred * weights, axes), count)  # rounding error of the mean
        squares = tf.reduce_sum(centred * centred * weights, axes) - count * missed**2
        # The gradient of the statistics is summed over the ranks: it is the gradient of the sum of
        # the ranks' losses.
        ranks = gradients.gathered(
            tf.stack([count, mean + missed, squares]), f"{unnumbered(self.path)}.statistics", self.process_set
        )
        counts, means, all_squares = tf.unstack(ranks, 3, axis=1)
        total = tf.reduce_sum(counts, 0)
        # Means are relative to the first rank's, so that the summands are small.
        offsets = means - means[0]
        shift = tf.reduce_sum(counts * offsets, 0) / total
        return means[0] + shift, tf.reduce_sum(all_squares + counts * (offsets - shift) ** 2, 0) / total

    @staticmethod
    def _broadcast_over(mean: Any, axes: Any) -> Any:
        for axis in sorted(axes):
            mean = tf.expand_dims(mean, axis)
        return mean

    @staticmethod
    def _mask_like(mask: Any, inputs: Any) -> Any:
        mask = tf.cast(mask, inputs.dtype)
        return tf.broadcast_to(mask[..., None] if mask.shape.rank < inputs.shape.rank else mask, tf.shape(inputs))
