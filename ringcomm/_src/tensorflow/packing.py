"""Pickling of TensorFlow's tensors in commits of elastic states, which copies memory only once.

Importing this module registers it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ringcomm._src.elastic.member.packing import array_from_parts, array_to_parts, register


def _reduce(tensor: tf.Tensor) -> Any:
    if tensor.dtype == tf.string or not tensor.shape.rank:  # small; asarray does not accept all of them
        return tf.constant, (tensor.numpy(), tensor.dtype)
    return _rebuild, array_to_parts(np.asarray(tensor))


def _rebuild(memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tf.Tensor:
    return tf.constant(array_from_parts(memory, dtype, shape))


register(tf.Tensor, _reduce)
