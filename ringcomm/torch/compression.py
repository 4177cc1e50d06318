"""What gradients travel as.

The built-in compressors name a *wire dtype*: the core casts while it moves the data, so nothing is cast in Python. A
compressor of your own is a class with ``compress`` and ``decompress``; it runs in Python on every tensor.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch


class Compressor:
    """Base of compressors. Subclasses give both static methods, or a ``wire`` dtype."""

    wire: ClassVar[torch.dtype | None] = None

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and a context that :meth:`decompress` gets back."""
        if cls.wire is None:
            return tensor, None
        return (tensor.to(cls.wire) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Undo :meth:`compress` on the reduced tensor."""
        return tensor if ctx is None or tensor.dtype == ctx else tensor.to(ctx)


class NoneCompressor(Compressor):
    """Data travels as it is."""


class FP16Compressor(Compressor):
    """float32 and float64 travel as float16. Sums past 65504 overflow: use a predivide factor, or bf16."""

    wire = torch.float16


class BF16Compressor(Compressor):
    """float32 and float64 travel as bfloat16: the range of float32 with 8 bits of precision."""

    wire = torch.bfloat16


class Compression:
    """The built-in compressors: ``none``, ``fp16``, ``bf16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


WIDE = (torch.float32, torch.float64)  # what a wire dtype narrows


def is_builtin(compression: Any) -> bool:
    """Whether the core does all of it: a built-in compressor, not a subclass with methods of its own."""
    return compression in (NoneCompressor, FP16Compressor, BF16Compressor)


def wire_of(compression: Any, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype in which elements of ``dtype`` travel, or None for their own."""
    return compression.wire if is_builtin(compression) and dtype in WIDE else None
