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
