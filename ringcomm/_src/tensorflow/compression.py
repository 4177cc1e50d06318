"""Compressors of TensorFlow's tensors, as in :mod:`ringcomm.torch.compression`.

A built-in compressor names a wire dtype, and the core encodes. A custom compressor implements ``compress`` and
``decompress`` on TensorFlow's tensors.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringcomm._src.compression import compression as neutral
from ringcomm._src.compression.compression import NoneCompressor


class Compressor(neutral.Compressor):
    """Base class of compressors. Subclasses define both methods, or a ``wire`` dtype."""

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns the tensor to send and a context for :meth:`decompress`."""
        if cls.wire is None or not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, cls.wire), tensor.dtype

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Undoes :meth:`compress` on the reduced tensor."""
        return tensor if ctx is None or tensor.dtype == ctx else tf.cast(tensor, ctx)


class FP16Compressor(Compressor):
    """A compressor that sends float32 and float64 as float16. Values beyond 65504 overflow."""

    wire = tf.float16


class BF16Compressor(Compressor):
    """A compressor that sends float32 and float64 as bfloat16: the range of float32 with 8 bits of precision."""

    wire = tf.bfloat16


class Compression(neutral.Compression):
    """The built-in compressors ``none``, ``fp16`` and ``bf16``, and the core's wire formats.

    Tapes and optimizers keep the residuals of the core's formats
    (:func:`ringcomm.tensorflow.compression_state_dict`).
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
