"""Compressors of gradients, under the names that Horovod gives them."""

from ringcomm._src.torch.compression import (
    BF16Compressor,
    Compression,
    Compressor,
    ErrorFeedback,
    FP16Compressor,
    NoneCompressor,
)

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "ErrorFeedback",
    "FP16Compressor",
    "NoneCompressor",
]
