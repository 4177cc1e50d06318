"""What tensors travel as: as in :mod:`ringcomm.torch.compression`. The built-in compressors name a wire dtype, and the
core does the rest; a compressor of your own has ``compress`` and ``decompress``, of TensorFlow's tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringcomm._src.compression import compression as neutral
from ringcomm._src.compression.compression import NoneCompressor


class Compressor(neutral.Compressor):
    """Base of compressors. Subclasses give both static methods, or a ``wire`` dtype."""

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """The tensor to send, and a context that :meth:`decompress` gets back."""
        if cls.wire is None or not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, cls.wire), tensor.dtype

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Undo :meth:`compress` on the reduced tensor."""
        return tensor if ctx is None or tensor.dtype == ctx else tf.cast(tensor, ctx)


class FP16Compressor(Compressor):
    """float32 and float64 travel as float16. What is past 65504 overflows on the way."""

    wire = tf.float16


class BF16Compressor(Compressor):
    """float32 and float64 travel as bfloat16: the range of float32 with 8 bits of precision."""

    wire = tf.bfloat16


class Compression(neutral.Compression):
    """The built-in compressors: ``none``, ``fp16``, ``bf16``; and the core's formats, of which tapes and optimizers
    keep what they leave out (:func:`ringcomm.tensorflow.compression_state_dict`)."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
