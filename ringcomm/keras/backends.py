"""What differs between Keras' backends: how lists of gradients are reduced, and what compressors there are."""

from __future__ import annotations

import importlib

import keras

from ringcomm import compression, gradient_lists
from ringcomm.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """float32 and float64 travel as float16. What is past 65504 overflows on the way."""

    wire = "float16"


class BF16Compressor(Compressor):
    """float32 and float64 travel as bfloat16: the range of float32 with 8 bits of precision."""

    wire = "bfloat16"


class Compression(compression.Compression):
    """The built-in compressors: ``none``, ``fp16``, ``bf16``; and the core's ``int8``, ``int4`` and ``qsgd(bits=4)``,
    of which nothing that they leave out is kept here. A backend's own work too: ``hvd.Compression`` of
    ``ringcomm.tensorflow`` or ``ringcomm.torch``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


# By Keras' backend: the module that says how its gradients are reduced.
REDUCTIONS = {
    "tensorflow": "ringcomm.tensorflow.reduction",
    "torch": "ringcomm.torch.reduction",
    "jax": "ringcomm.jax.reduction",
}


def reduction_class() -> type[gradient_lists.GradientReduction]:
    """Of the backend that Keras runs on. Raises ImportError for one that has none."""
    backend = keras.backend.backend()
    if backend not in REDUCTIONS:
        raise ImportError(f"ringcomm.keras works on Keras' {', '.join(REDUCTIONS)} backends, not on {backend}")
    return importlib.import_module(REDUCTIONS[backend]).GradientReduction
