"""What data travels as, whatever the framework: each binding has compressors for its own tensors.
``docs/compression.md`` says which format to take.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ringcomm import _core
from ringcomm.arrays import CoreMemory
from ringcomm.wire_formats import (
    Auto,
    Int4,
    Int8,
    OneBit,
    PowerSGD,
    RandomK,
    Ternary,
    Threshold,
    TopK,
    WireFormat,
    qsgd,
)


class Compression:
    """Wire formats of the core. Each binding's ``Compression`` has these, and its own compressors."""

    auto = Auto()
    int8 = Int8()
    int4 = Int4()
    qsgd = staticmethod(qsgd)
    ternary = Ternary(warmup_steps=1000)
    terngrad = Ternary(stochastic=True, error_feedback=False)
    onebit = OneBit(warmup_steps=1000)
    topk = TopK(warmup_steps=1000)
    threshold = Threshold(warmup_steps=1000)
    randomk = RandomK(warmup_steps=1000)
    powersgd = PowerSGD(warmup_steps=1000)


class Feedback:
    """What this rank's encoders have left out of an array's calls, and add in the next one:
    ``comm.allreduce(x, wire=Compression.onebit, feedback=feedback)``. One for each array, on each rank.

    What is owed is in units of the sum, before an average is divided: when the number of ranks changes it stays right
    of sums, and of averages if it is scaled as that number is. The wire format may change. Not to be used while a call
    with it is under way.

    Source: Karimireddy et al., arXiv:1901.09847.
    """

    def __init__(self, count: int) -> None:
        """`count`: elements of the array."""
        self._core = _core.Feedback([count])

    def __len__(self) -> int:
        return self._core.count()

    @property
    def owed(self) -> np.ndarray[Any, Any]:
        """float32 array of what is owed after the last call; may be written to. It holds until the next call."""
        return owed_array(self._core, 0)

    def undo(self) -> None:
        """Of the last call: its result is dropped, so what it has sent is owed again."""
        self._core.undo(0)

    def scale(self, by: float) -> None:
        """The arrays' units have changed by this factor."""
        self._core.scale(by)


def owed_array(feedback: _core.Feedback, tensor: int) -> np.ndarray[Any, Any]:
    """What a feedback holds of a tensor."""
    address, count = feedback.owed(tensor)
    return np.asarray(CoreMemory(address, 4 * count, feedback)).view(np.float32)


# ---- which gradient travels as what ----------------------------------------------------------------------------------
def choose(compression: Any, name: str, parameter: Any) -> Any:
    """What an optimizer's gradient travels as: ``compression`` itself; the entry of the first pattern in it, as of
    ``fnmatch``, that fits the name (None if none does); or what it returns for name and parameter, if it is a
    function."""
    if isinstance(compression, Mapping):
        return next((value for pattern, value in compression.items() if fnmatch.fnmatchcase(name, pattern)), None)
    if is_rule(compression):
        return compression(name, parameter)
    return compression


def is_rule(compression: Any) -> bool:
    """Whether it says for each gradient what to do."""
    is_function = isinstance(compression, Callable) and not isinstance(compression, type | WireFormat)  # type: ignore[arg-type]
    return isinstance(compression, Mapping) or (is_function and not hasattr(compression, "compress"))


# ---- compressors -----------------------------------------------------------------------------------------------------
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
    if isinstance(compression, WireFormat):
        return False
    own = {"compress", "decompress"} & set(vars(compression))
    return compression is not NoneCompressor and (bool(own) or getattr(compression, "wire", None) is None)


def parts_of(compression: Any) -> tuple[Any, Any]:
    """(what the core does: a wire format or None, what is done before and after: a compressor)"""
    if isinstance(compression, WireFormat):
        return compression, NoneCompressor
    return (None, compression) if own_work(compression) else (compression.wire, NoneCompressor)


def compressed(compressor: Any, tensors: Sequence[Any], reduce: Callable[[list[Any]], Sequence[Any]]) -> list[Any]:
    """What ``reduce`` gives for what the compressor sends of the tensors, decompressed."""
    pairs = [compressor.compress(one) for one in tensors]
    reduced = reduce([sent for sent, _ in pairs])
    return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]
