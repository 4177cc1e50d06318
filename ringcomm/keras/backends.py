"""What differs between Keras' backends: how lists of gradients are reduced, and what compressors there are."""

from __future__ import annotations

from typing import Any

import keras

from ringcomm import gradient_lists
from ringcomm.compression import Compressor, NoneCompressor, parts_of


class FP16Compressor(Compressor):
    """float32 and float64 travel as float16. What is past 65504 overflows on the way."""

    wire = "float16"


class BF16Compressor(Compressor):
    """float32 and float64 travel as bfloat16: the range of float32 with 8 bits of precision."""

    wire = "bfloat16"


class Compression:
    """The built-in compressors: ``none``, ``fp16``, ``bf16``. A backend's own work too: ``hvd.Compression`` of
    ``ringcomm.tensorflow`` or ``ringcomm.torch``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def reduction_class() -> type[gradient_lists.GradientReduction]:
    """Of the backend that Keras runs on. Raises ImportError for one that has none."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from ringcomm.tensorflow.reduction import GradientReduction

        return GradientReduction
    if backend == "torch":
        return _torch_reduction()
    if backend == "jax":
        from ringcomm.jax.reduction import GradientReduction as OfJax

        return OfJax
    raise ImportError(f"ringcomm.keras works on Keras' tensorflow, torch and jax backends, not on {backend}")


def _torch_reduction() -> type[gradient_lists.GradientReduction]:
    from ringcomm.reductions import Reduction
    from ringcomm.torch.asynchronous import operations

    class GradientReduction(gradient_lists.GradientReduction):
        """Of torch's tensors, in place: backward has made them, and nobody else has them."""

        def reduce_dense(self, gradients: list[Any], names: list[str]) -> list[Any]:
            wire, compressor = parts_of(self.compression)
            how = Reduction(self.op, *self.factors(), self.process_set, self.algorithm, wire)
            pairs = [compressor.compress(one.detach()) for one in gradients]
            requests = [operations.allreduce_request(how, sent, True) for sent, _ in pairs]
            reduced = how.submit_group(requests, names).wait()
            return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]

    return GradientReduction
