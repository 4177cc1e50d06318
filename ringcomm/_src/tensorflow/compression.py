"""Compressors of TensorFlow's tensors, as in :mod:`ringcomm.torch.compression`.

A built-in compressor names a wire dtype, and the core encodes the data. A custom compressor
implements ``compress`` and ``decompress`` on TensorFlow's tensors.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringcomm._src.compression import compression as neutral
from ringcomm._src.compression.compression import NoneCompressor


class Compressor(neutral.Compressor):
    """Base class of compressors.

    A subclass defines `wire`, a dtype in which the core sends tensors between hosts. Or it
    overrides `compress` and, if the result must be converted back, `decompress`.

    Examples
    --------
    >>> class Halved(hvd.compression.Compressor):
    ...     @classmethod
    ...     def compress(cls, tensor):
    ...         return tensor / 2, None
    ...
    ...     @classmethod
    ...     def decompress(cls, tensor, ctx):
    ...         return tensor * 2
    >>> hvd.allreduce(tf.ones(2), compression=Halved).numpy().tolist()
    [1.0, 1.0]
    """

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns the tensor to send and a context for :meth:`decompress`.

        Parameters
        ----------
        tensor : tf.Tensor
            This rank's tensor of any shape and dtype.

        Returns
        -------
        tuple[tf.Tensor, Any]
            The tensor in the ``wire`` dtype and its dtype; the tensor itself and None if it is not
            floating or there is no ``wire`` dtype.
        """
        if cls.wire is None or not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, cls.wire), tensor.dtype

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Reverses :meth:`compress` on the reduced tensor.

        Parameters
        ----------
        tensor : tf.Tensor
            The reduced tensor.
        ctx : Any
            The context that :meth:`compress` returned.

        Returns
        -------
        tf.Tensor
            The tensor in its original dtype.
        """
        return tensor if ctx is None or tensor.dtype == ctx else tf.cast(tensor, ctx)


class FP16Compressor(Compressor):
    """A compressor that sends float32 and float64 as float16. Values beyond 65504 overflow.

    Examples
    --------
    >>> hvd.allreduce(tf.ones(2), compression=hvd.compression.FP16Compressor).dtype.name
    'float32'
    """

    wire = tf.float16


class BF16Compressor(Compressor):
    """A compressor that sends float32 and float64 as bfloat16.

    bfloat16 has the range of float32 and 8 bits of precision.

    Examples
    --------
    >>> hvd.allreduce(tf.ones(2), compression=hvd.compression.BF16Compressor).dtype.name
    'float32'
    """

    wire = tf.bfloat16


class Compression(neutral.Compression):
    """The built-in compressors ``none``, ``fp16`` and ``bf16``, and the core's wire formats.

    Tapes and optimizers store the residuals of the core's formats
    (:func:`ringcomm.tensorflow.compression_state_dict`).

    Examples
    --------
    >>> hvd.allreduce(tf.ones(2), compression=hvd.Compression.fp16, op=hvd.Sum).numpy().tolist()
    [2.0, 2.0]
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
