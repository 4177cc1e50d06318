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
    """Base class of compressors. A compressor with a ``wire`` format (``ops.wire_code``) leaves the
    work to the core."""

    wire: ClassVar[Any] = None

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and a context that :meth:`decompress` gets back."""
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Reverses :meth:`compress` on the reduced tensor."""
        return tensor


class NoneCompressor(Compressor):
    """Sends data unchanged."""


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16. Values beyond 65504 overflow."""

    wire = "float16"


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16, which has the range of float32 with 8 bits of precision."""

    wire = "bfloat16"


# ---- formats by name -------------------------------------------------------------------------------------------------
class Compression:
    """The built-in compressors ``none``, ``fp16`` and ``bf16``, and the core's wire formats.

    Bindings may replace the compressors by their own. A name can be passed instead:
    ``compression="int8"``.
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
    """Returns the checked argument ``compression`` of users; a name is looked up in `known`.

    Args:
        rules: the caller accepts a dict from name patterns to compressions, and a function of name and
            parameter.

    Raises:
        ValueError: it is no compression; the message lists the names, the nearest first.
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
    by_name = "a dict or a function that says so by the parameter's name, " if rules else ""
    raise ValueError(
        f"compression={compression!r} is none that there is. Known: {', '.join(names)}. Or give a format with "
        f"parameters (Compression.topk(0.01)), {by_name}or a compressor with compress and decompress"
    )


def unused_patterns(compression: Any, names: Iterable[str]) -> list[str]:
    """Returns the patterns of a dict that match no name."""
    names = list(names)
    patterns = compression if isinstance(compression, Mapping) else ()
    return [one for one in patterns if not any(fnmatch.fnmatchcase(name, one) for name in names)]


class Feedback:
    """The residual of one array on this rank: what encoders left out of its calls so far, added to the next call.

    Pass it as ``comm.allreduce(x, wire=Compression.onebit, feedback=feedback)``; create one for each array, on each
    rank. The residual is in units of the sum, before an average is divided. If the number of ranks changes, it stays
    right for sums, and for averages if it is scaled by the same factor. The wire format may change between calls. Do
    not use it while a call with it is in progress.

    Source: Karimireddy et al., arXiv:1901.09847.
    """

    def __init__(self, count: int) -> None:
        """`count`: elements of the array."""
        self._core = _core.Feedback([count])

    def __len__(self) -> int:
        return self._core.count()

    @property
    def residual(self) -> np.ndarray[Any, Any]:
        """The residual after the last call: a writable float32 array. It is valid until the next call."""
        return residual_array(self._core, 0)

    def undo(self) -> None:
        """Restores the residual from before the last call, for a caller that drops the call's result."""
        self._core.undo(0)

    def scale(self, by: float) -> None:
        """Multiplies the residual by `by`, for a caller that has changed the units of its arrays by that factor."""
        self._core.scale(by)


def residual_array(feedback: _core.Feedback, tensor: int) -> np.ndarray[Any, Any]:
    """Returns the residual of one tensor as a float32 array."""
    address, count = feedback.residual(tensor)
    return np.asarray(CoreMemory(address, 4 * count, feedback)).view(np.float32)


# ---- the format of each gradient -------------------------------------------------------------------------------------
def choose(compression: Any, name: str, parameter: Any) -> Any:
    """Returns the compression of an optimizer's gradient, according to ``compression``.

    A dict gives the entry of the first pattern (as in ``fnmatch``) that matches the name; None if
    none matches. A function is called with name and parameter. Any other value applies to all
    gradients.
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
def own_work(compression: Any) -> bool:
    """Returns True if a compressor does work in Python, beyond naming a wire format."""
    if isinstance(compression, WireFormat):
        return False
    own = {"compress", "decompress"} & set(vars(compression))
    return compression is not NoneCompressor and (bool(own) or getattr(compression, "wire", None) is None)


def parts_of(compression: Any) -> tuple[Any, Any]:
    """Returns (wire format that the core applies, or None; compressor that Python applies)."""
    if not isinstance(compression, type):
        compression = resolved(compression)
    if isinstance(compression, WireFormat):
        return compression, NoneCompressor
    return (None, compression) if own_work(compression) else (compression.wire, NoneCompressor)


def compressed(compressor: Any, tensors: Sequence[Any], reduce: Callable[[list[Any]], Sequence[Any]]) -> list[Any]:
    """Compresses the tensors, calls ``reduce``, and returns the decompressed results."""
    pairs = [compressor.compress(one) for one in tensors]
    reduced = reduce([sent for sent, _ in pairs])
    return [compressor.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]
