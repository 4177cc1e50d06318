"""Compressors of gradients, under Horovod's module name."""

from ringcomm._src.tensorflow.compression import BF16Compressor, Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
]
