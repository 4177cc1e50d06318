"""Compressors of gradients. Named as in Horovod."""

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
