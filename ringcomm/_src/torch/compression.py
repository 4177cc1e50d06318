"""What tensors travel as. It means the same wherever ``compression=`` is an argument.

The built-in compressors name a *wire dtype*: the core narrows what it sends from host to host, and widens it before it
reduces, so that sums are made in the tensor's own dtype and nothing is cast in Python. Between the ranks of one host
nothing is narrowed, for nothing is sent: they read each other's memory. (Horovod casts the tensor and reduces in half.)

A compressor of your own is a class with ``compress`` and ``decompress``; it runs in Python on every tensor, and what it
makes of the tensor is what is reduced. In an optimizer ``compress(tensor, name)`` is told the parameter's name.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch

from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.compression import compression as neutral
from ringcomm._src.compression.compression import NoneCompressor, choose, is_rule, resolved


class Compressor(neutral.Compressor):
    """Base of compressors. Subclasses give both static methods, or a ``wire`` dtype."""

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


class FP16Compressor(Compressor):
    """float32 and float64 travel as float16. What is past 65504, also a partial sum, overflows on the way: use a
    predivide factor, or bf16."""

    wire = torch.float16


class BF16Compressor(Compressor):
    """float32 and float64 travel as bfloat16: the range of float32 with 8 bits of precision."""

    wire = torch.bfloat16


class ErrorFeedback:
    """A compressor of your own that keeps what it leaves out of an optimizer's gradient, and adds it to the next one:
    ``compression=hvd.ErrorFeedback(Mine)``. It is kept by name; where there is none (``hvd.allreduce``) nothing is.

    Of a gradient with an infinity or a NaN nothing is kept. Source: Karimireddy et al., arXiv:1901.09847.
    """

    def __init__(self, compressor: Any) -> None:
        """`compressor`: a class or an object with ``compress(tensor)`` and ``decompress(tensor, ctx)``."""
        self._compressor = compressor
        self.residual: dict[str, torch.Tensor] = {}  # by parameter
        self.__name__ = f"ErrorFeedback({getattr(compressor, '__name__', type(compressor).__name__)})"

    def compress(self, tensor: torch.Tensor, name: str = "") -> tuple[torch.Tensor, Any]:
        whole = tensor + self.residual[name] if name in self.residual else tensor
        sent, ctx = self._compressor.compress(whole)
        if name and bool(torch.isfinite(whole).all()):
            self.residual[name] = whole - self._compressor.decompress(sent, ctx)
        return sent, ctx

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        result: torch.Tensor = self._compressor.decompress(tensor, ctx)
        return result


def compress_by_name(compressor: Any, tensor: torch.Tensor, name: str) -> tuple[torch.Tensor, Any]:
    """Tells the name to a compressor that asks for it."""
    asks = len(inspect.signature(compressor.compress).parameters) > 1
    result: tuple[torch.Tensor, Any] = compressor.compress(tensor, name) if asks else compressor.compress(tensor)
    return result


class Compression(neutral.Compression):
    """The built-in compressors: ``none``, ``fp16``, ``bf16``; and the core's wire formats that lose more, and keep what
    they lose (`ringcomm._src.compression.compression`)."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def is_builtin(compression: Any) -> bool:
    """Whether the core does all of it: a built-in compressor, not a subclass with methods of its own."""
    return is_lossy(compression) or compression in (NoneCompressor, FP16Compressor, BF16Compressor)


def is_lossy(compression: Any) -> bool:
    """Whether an optimizer's gradients travel as formats that keep what they lose, or each as a rule says."""
    return isinstance(compression, WireFormat) or is_rule(compression)


def format_of(compression: Any, name: str, parameter: torch.Tensor) -> WireFormat | torch.dtype | None:
    """What an optimizer's gradient of this parameter travels as in a bucket; None: as it is, or not in a bucket.

    Raises:
        ValueError: a rule asks for something else.
    """
    if not is_builtin(compression):
        return None
    choice = choose(compression, name, parameter)
    if is_rule(compression):
        choice = resolved(choice, Compression)
    if isinstance(choice, WireFormat):
        return choice if parameter.dtype.is_floating_point and choice.fits(tuple(parameter.shape)) else None
    if choice is None or choice is NoneCompressor:
        return None
    if not is_builtin(choice) or is_rule(choice):
        raise ValueError(
            f"compression of '{name}' is {choice!r}: a rule may name wire formats (hvd.Compression.int8, ...), none, "
            "fp16 and bf16; a compressor in Python is for all gradients"
        )
    wire: torch.dtype = choice.wire
    return wire


class Parts(NamedTuple):
    """Who does what of a compression."""

    wire: torch.dtype | WireFormat | None  # the core, on the way
    compressor: Any  # Python, before and after


def parts_of(compression: Any) -> Parts:
    if not isinstance(compression, type):
        compression = resolved(compression, Compression)
    if isinstance(compression, WireFormat):
        return Parts(compression, NoneCompressor)
    return Parts(compression.wire, NoneCompressor) if is_builtin(compression) else Parts(None, compression)
