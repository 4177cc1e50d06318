"""Compressors of torch tensors: the values of arguments ``compression=``.

The built-in compressors name a *wire dtype*. The core narrows the data that it sends between hosts,
and widens it before it reduces. So sums are computed in the tensor's dtype, and Python casts
nothing. Within a host nothing is narrowed, because ranks read each other's memory. (Horovod casts
the tensor and reduces in half precision.)

A custom compressor is a class with ``compress`` and ``decompress``. It runs in Python on every
tensor; the tensors that ``compress`` returns are reduced. In an optimizer, ``compress(tensor,
name)`` also gets the parameter's name.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch

from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.compression import compression as neutral
from ringcomm._src.compression.compression import NoneCompressor, choose, is_rule, resolved


class Compressor(neutral.Compressor):
    """Base class of compressors.

    A subclass defines `wire`, a dtype to which floating-point tensors are cast. Or it overrides
    `compress` and, if the result must be converted back, `decompress`.

    Examples
    --------
    >>> from ringcomm.torch.compression import Compressor
    >>> class Rounded(Compressor):
    ...     @classmethod
    ...     def compress(cls, tensor):
    ...         return tensor.round(), None
    >>> hvd.allreduce(torch.full((2,), 0.7), name="rounded", compression=Rounded).tolist()
    [1.0, 1.0]
    """

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Returns the tensor to send, and a context that is passed to :meth:`decompress`."""
        if cls.wire is None:
            return tensor, None
        return (tensor.to(cls.wire) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Reverses :meth:`compress` on the reduced tensor."""
        return tensor if ctx is None or tensor.dtype == ctx else tensor.to(ctx)


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16.

    Values and partial sums beyond 65504 overflow. A predivide factor or bf16 avoids that.

    Examples
    --------
    >>> hvd.allreduce(torch.ones(2), name="fp16", compression=hvd.Compression.fp16).tolist()
    [1.0, 1.0]
    """

    wire = torch.float16


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: the range of float32, 8 bits of precision.

    Examples
    --------
    >>> hvd.allreduce(torch.ones(2), name="bf16", compression=hvd.Compression.bf16).tolist()
    [1.0, 1.0]
    """

    wire = torch.bfloat16


class ErrorFeedback:
    """A compressor that adds error feedback to a custom one, for optimizers.

    Pass it as ``compression=hvd.ErrorFeedback(Mine)``.

    The residual is the part of an optimizer's gradient that the compressor left out. It is added to
    the next gradient of the same parameter. A gradient with an infinity or a NaN does not change
    the residual.

    Source: Karimireddy et al., arXiv:1901.09847.

    Parameters
    ----------
    compressor : type
        A class or an object with ``compress(tensor)`` and ``decompress(tensor, ctx)``.

    Attributes
    ----------
    residual : dict[str, torch.Tensor]
        Residuals by parameter name. Calls without a name (``hvd.allreduce``) store none.

    Examples
    --------
    >>> from ringcomm.torch.compression import Compressor
    >>> class Rounded(Compressor):
    ...     @classmethod
    ...     def compress(cls, tensor):
    ...         return tensor.round(), None
    >>> feedback = hvd.ErrorFeedback(Rounded)
    >>> sent, ctx = feedback.compress(torch.tensor([0.75]), "weight")
    >>> sent.item(), feedback.residual["weight"].item()
    (1.0, -0.25)
    """

    def __init__(self, compressor: Any) -> None:
        self._compressor = compressor
        self.residual: dict[str, torch.Tensor] = {}  # by parameter name
        self.__name__ = f"ErrorFeedback({getattr(compressor, '__name__', type(compressor).__name__)})"

    def compress(self, tensor: torch.Tensor, name: str = "") -> tuple[torch.Tensor, Any]:
        corrected = tensor + self.residual[name] if name in self.residual else tensor
        sent, ctx = self._compressor.compress(corrected)
        if name and bool(torch.isfinite(corrected).all()):
            self.residual[name] = corrected - self._compressor.decompress(sent, ctx)
        return sent, ctx

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        result: torch.Tensor = self._compressor.decompress(tensor, ctx)
        return result


def compress_by_name(compressor: Any, tensor: torch.Tensor, name: str) -> tuple[torch.Tensor, Any]:
    """Calls ``compress``, with the name if the compressor takes one."""
    takes_name = len(inspect.signature(compressor.compress).parameters) > 1
    result: tuple[torch.Tensor, Any] = compressor.compress(tensor, name) if takes_name else compressor.compress(tensor)
    return result


class Compression(neutral.Compression):
    """The built-in compressors ``none``, ``fp16`` and ``bf16``, and the core's wire formats.

    Wire formats (``int8``, ``topk``) lose more than casts. In optimizers, most of them add their
    error to the next gradient (error feedback). docs/compression.md describes them.

    Examples
    --------
    >>> hvd.allreduce(torch.ones(2), name="compressed", compression=hvd.Compression.fp16).tolist()
    [1.0, 1.0]
    >>> weight = torch.nn.Parameter(torch.zeros(64, 64))
    >>> optimizer = hvd.DistributedOptimizer(
    ...     torch.optim.SGD([weight], lr=1.0), compression=hvd.Compression.topk(0.01)
    ... )
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def is_builtin(compression: Any) -> bool:
    """Returns True if the core compresses, without a compressor in Python."""
    return is_lossy(compression) or compression in (NoneCompressor, FP16Compressor, BF16Compressor)


def is_lossy(compression: Any) -> bool:
    """Returns True for wire formats, which store residuals, and for rules that may choose one."""
    return isinstance(compression, WireFormat) or is_rule(compression)


def format_of(compression: Any, name: str, parameter: torch.Tensor) -> WireFormat | torch.dtype | None:
    """Returns the format of this parameter's gradient in a bucket; None: it is sent unchanged.

    Raises
    ------
    ValueError
        A rule names a compressor that buckets do not support.
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
            "fp16 and bf16. Pass a compressor in Python as compression itself; it then applies to all gradients"
        )
    wire: torch.dtype = choice.wire
    return wire


class Parts(NamedTuple):
    """A compression split into the core's part and Python's part."""

    wire: torch.dtype | WireFormat | None  # applied by the core to the data it sends
    compressor: Any  # applied in Python before and after


def parts_of(compression: Any) -> Parts:
    if not isinstance(compression, type):
        compression = resolved(compression, Compression)
    if isinstance(compression, WireFormat):
        return Parts(compression, NoneCompressor)
    return Parts(compression.wire, NoneCompressor) if is_builtin(compression) else Parts(None, compression)
