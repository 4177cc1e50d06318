"""What data travels as, whatever the framework: each binding has compressors for its own tensors."""

from __future__ import annotations

from typing import Any, ClassVar


class Compressor:
    """Base of compressors. Those of the core name a ``wire`` format (``ops.wire_code``), and the core does the rest."""

    wire: ClassVar[Any] = None

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and a context that :meth:`decompress` gets back."""
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Undo :meth:`compress` on the reduced tensor."""
        return tensor


class NoneCompressor(Compressor):
    """Data travels as it is."""


def own_work(compression: Any) -> bool:
    """Whether a compressor does something itself: it is no class of the binding's that only names a wire format."""
    own = {"compress", "decompress"} & set(vars(compression))
    return compression is not NoneCompressor and (bool(own) or getattr(compression, "wire", None) is None)


def parts_of(compression: Any) -> tuple[Any, Any]:
    """(what the core does: a wire format or None, what is done before and after: a compressor)"""
    return (None, compression) if own_work(compression) else (compression.wire, NoneCompressor)
