"""Compression independent of the framework: compressors, names of formats, rules, and residuals.

Each binding has compressors for its own tensors, derived from these. ``docs/compression.md``
explains which format to choose.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ringcomm._src.arrays.numpy_kind import CoreMemory
from ringcomm._src.base.wire_formats import (
    Auto,
    Int4,
    Int8,
    OneBit,
    PowerSGD,
    Ternary,
    Threshold,
    TopK,
    WireFormat,
    qsgd,
)
from ringcomm._src.core import _core


# ---- compressors -----------------------------------------------------------------------------------------------------
class Compressor:
    """Base class of compressors. If ``wire`` is a format, the core encodes the data instead."""

    wire: ClassVar[Any] = None

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and a context for :meth:`decompress`."""
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Reverses :meth:`compress` on the reduced tensor."""
        return tensor


class NoneCompressor(Compressor):
    """Sends data unchanged.

    Examples
    --------
    >>> data, context = hvd.Compression.none.compress(np.ones(2))
    >>> hvd.Compression.none.decompress(data, context).tolist()
    [1.0, 1.0]
    """


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16. Values beyond 65504 overflow."""

    wire = "float16"


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: the range of float32, with 8 bits of precision."""

    wire = "bfloat16"


# ---- formats by name -------------------------------------------------------------------------------------------------
class Compression:
    """The compressors ``none``, ``fp16`` and ``bf16``, and the core's wire formats.

    Bindings replace the compressors with those for their tensors. Every argument ``compression``
    and ``wire`` also accepts a name. docs/compression.md describes the formats.

    Examples
    --------
    >>> str(ringcomm.Compression.topk(0.001))  # a format with other parameters
    'topk(ratio=0.001)'
    >>> x = np.ones(4, np.float32)
    >>> comm.allreduce(x, wire=ringcomm.Compression.bf16).tolist()
    [2.0, 2.0, 2.0, 2.0]
    >>> y = comm.allreduce(x, wire="int8")
    """

    none: Any = NoneCompressor
    fp16: Any = FP16Compressor
    bf16: Any = BF16Compressor
    auto = Auto()
    int8 = Int8()
    int4 = Int4()
    qsgd = staticmethod(qsgd)
    ternary = Ternary(warmup_steps=1000)
    terngrad = Ternary(stochastic=True, error_feedback=False)
    onebit = OneBit(warmup_steps=1000)
    topk = TopK(warmup_steps=1000)
    threshold = Threshold(warmup_steps=1000)
    powersgd = PowerSGD(warmup_steps=1000)


_ALIASES = {"float16": "fp16", "bfloat16": "bf16"}


def resolved(compression: Any, known: type[Compression] = Compression, rules: bool = False) -> Any:
    """Checks and returns a user's argument ``compression``; a name is looked up in `known`.

    Parameters
    ----------
    rules : bool
        True: a dict from name patterns to compressions, and a function of name and parameter, are
        allowed too.

    Raises
    ------
    ValueError
        The argument is not a compression; the message lists the names, the nearest first.
    """
    if compression is None:
        return NoneCompressor
    if isinstance(compression, str):
        found = getattr(known, _ALIASES.get(compression, compression), None)
        if isinstance(found, WireFormat | type):
            return found
    elif isinstance(compression, Mapping):
        if rules:
            return {pattern: resolved(value, known) for pattern, value in compression.items()}
    elif is_rule(compression):
        if rules:
            return compression
    elif isinstance(compression, WireFormat) or (
        hasattr(compression, "compress") and hasattr(compression, "decompress")
    ):
        return compression
    names = [name for name in dir(known) if isinstance(getattr(known, name), WireFormat | type) and name[0] != "_"]
    if isinstance(compression, str):
        names = difflib.get_close_matches(compression, names, len(names), 0.0)
    by_name = "a dict or a function of the parameter's name, " if rules else ""
    raise ValueError(
        f"compression={compression!r} is unknown. Known: {', '.join(names)}. Other values are a format with "
        f"parameters (Compression.topk(0.01)), {by_name}and a compressor with compress and decompress"
    )


def unused_patterns(compression: Any, names: Iterable[str]) -> list[str]:
    """Returns the patterns of a dict that match no name."""
    names = list(names)
    patterns = compression if isinstance(compression, Mapping) else ()
    return [pattern for pattern in patterns if not any(fnmatch.fnmatchcase(name, pattern) for name in names)]


class Feedback:
    """The residual of one array on this rank: the error of past encodings, added to the next call.

    Create one for each array, on each rank. The residual is in units of the sum; for an average,
    this is the value before the division by the number of ranks. If the number of ranks changes,
    the residual stays valid for sums; for averages, scale it by the same factor. The wire format
    may change between calls. Do not use a Feedback while a call with it is in progress.

    Source: Karimireddy et al., arXiv:1901.09847.

    Parameters
    ----------
    count : int
        Number of elements of the array.

    Examples
    --------
    >>> feedback = ringcomm.Feedback(4)
    >>> x = np.ones(4, np.float32)
    >>> y = comm.allreduce(x, wire=ringcomm.Compression.onebit, feedback=feedback)
    >>> len(feedback)
    4
    """

    def __init__(self, count: int) -> None:
        self._core = _core.Feedback([count])

    def __len__(self) -> int:
        return self._core.count()

    @property
    def residual(self) -> np.ndarray[Any, Any]:
        """The residual, a writable float32 array [count]. It is valid until the next call."""
        return residual_array(self._core, 0)

    def undo(self) -> None:
        """Restores the residual before the last call; for programs that discard its result."""
        self._core.undo(0)

    def scale(self, by: float) -> None:
        """Multiplies the residual by ``by``, after a change of the arrays' units by this factor."""
        self._core.scale(by)


def residual_array(feedback: _core.Feedback, tensor: int) -> np.ndarray[Any, Any]:
    """Returns the residual of one tensor as a float32 array."""
    address, count = feedback.residual(tensor)
    return np.asarray(CoreMemory(address, 4 * count, feedback)).view(np.float32)


# ---- the format of each gradient -------------------------------------------------------------------------------------
def choose(compression: Any, name: str, parameter: Any) -> Any:
    """Returns the compression of an optimizer's gradient, according to ``compression``.

    A dict gives the entry of the first pattern (as in ``fnmatch``) that matches the name, or None
    if no pattern matches. A function is called with name and parameter. Any other value applies to
    all gradients.
    """
    if isinstance(compression, Mapping):
        return next((value for pattern, value in compression.items() if fnmatch.fnmatchcase(name, pattern)), None)
    if is_rule(compression):
        return compression(name, parameter)
    return compression


def is_rule(compression: Any) -> bool:
    """Returns True if the value chooses a compression for each gradient."""
    is_function = isinstance(compression, Callable) and not isinstance(compression, type | WireFormat)  # type: ignore[arg-type]
    return isinstance(compression, Mapping) or (is_function and not hasattr(compression, "compress"))


# ---- the parts of a compressor ---------------------------------------------------------------------------------------
def works_in_python(compression: Any) -> bool:
    """Returns True if a compressor does work in Python, beyond naming a wire format."""
    if isinstance(compression, WireFormat):
        return False
    overridden = {"compress", "decompress"} & set(vars(compression))
    return compression is not NoneCompressor and (bool(overridden) or getattr(compression, "wire", None) is None)


def parts_of(compression: Any) -> tuple[Any, Any]:
    """Returns (wire format that the core applies, or None; compressor that Python applies)."""
    if not isinstance(compression, type):
        compression = resolved(compression)
    if isinstance(compression, WireFormat):
        return compression, NoneCompressor
    return (None, compression) if works_in_python(compression) else (compression.wire, NoneCompressor)


def reduce_compressed(
    compressor: Any, tensors: Sequence[Any], reduce: Callable[[list[Any]], Sequence[Any]]
) -> list[Any]:
    """Compresses the tensors, calls ``reduce``, and returns the decompressed results."""
    pairs = [compressor.compress(tensor) for tensor in tensors]
    reduced = reduce([sent for sent, _ in pairs])
    return [compressor.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs, strict=True)]
