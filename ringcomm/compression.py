"""What data travels as, whatever the framework: each binding has compressors for its own tensors.

A *wire format* is the core's: it encodes what goes from host to host (csrc/codecs). Some round, such as bfloat16. The
others lose something each time, and keep what they have lost for the next time (*error feedback*): quantisers (int8,
int4, onebit, ternary), sparsifiers (topk, threshold, randomk), and two thin factors of a matrix (powersgd).
``docs/compression.md`` says which to take.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ringcomm import _core

DRAWN, TWO_MEANS, HALF_VALUES = 1, 2, 4  # bits of a wire format's mode


@dataclasses.dataclass(frozen=True, kw_only=True)
class WireFormat:
    """A wire format with its parameters. Immutable; called, it gives another one: ``Compression.topk(0.001)``.

    Attributes:
        error_feedback: an optimizer adds what an encoder has left out of a gradient to the next one. It costs 8 bytes
            for each element that this rank encodes.
        everywhere: an optimizer's gradients travel so between the ranks of one host too, by messages: slower there,
            for studying convergence on one machine.
        min_elements: smaller gradients, and those of one dimension, travel as they are.
        warmup_steps: an optimizer's first steps travel as ``warmup`` (int8 unless it is given).

    Raises:
        ValueError: parameters that are none, when it is made.
    """

    error_feedback: bool = True
    everywhere: bool = False
    min_elements: int = 1024
    warmup_steps: int = 0
    warmup: WireFormat | None = None

    name: ClassVar[str]
    of_gradients: ClassVar[bool] = False  # an optimizer's only: no array's, and of no single operation

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", self._code())
        if self.min_elements < 0 or self.warmup_steps < 0:
            raise ValueError(f"{self.name}: min_elements and warmup_steps are not negative")

    def _code(self) -> int:
        return _core.wire_code(self.name)

    code: int = dataclasses.field(init=False, repr=False, compare=False, default=0)  # what ranks compare

    def __call__(self, *args: Any, **changes: Any) -> Any:
        own = [f.name for f in dataclasses.fields(self) if f.name not in _COMMON]
        if len(args) > len(own):
            raise TypeError(f"{self.name} takes {len(own)} parameters by position: {', '.join(own)}")
        return dataclasses.replace(self, **dict(zip(own, args, strict=False)), **changes)

    def __str__(self) -> str:
        return _core.wire_text(self.code)

    def text(self) -> str:
        """All that must be equal on all ranks."""
        warmup = f" after {self.warmup_steps} steps of {self.first()}" if self.warmup_steps else ""
        flags = [name for name in ("error_feedback", "everywhere") if getattr(self, name)]
        return f"{self}{warmup} from {self.min_elements} elements {' '.join(flags)}"

    def first(self) -> WireFormat:
        """What an optimizer's first steps travel as."""
        return self.warmup or Compression.int8

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an optimizer compresses gradients of this shape."""
        return len(shape) >= 2 and int(np.prod(shape)) >= self.min_elements


_COMMON = {f.name for f in dataclasses.fields(WireFormat)}


@dataclasses.dataclass(frozen=True)
class Integers(WireFormat):
    """Whole multiples of a step, in 8 or 4 bits; the step is that of a group of elements, a float32.

    Source: Alistarh et al., "QSGD", arXiv:1610.02132 (stochastic rounding).

    Attributes:
        group: elements that share a step: a multiple of 32 up to 2048.
        stochastic: rounded up or down by chance, so that the mean is right.
    """

    group: int = 256
    stochastic: bool = False

    def _code(self) -> int:
        return _core.wire_code(self.name, DRAWN * self.stochastic, self.group, 0.0)


class Int8(Integers):
    name = "int8"


class Int4(Integers):
    name = "int4"


@dataclasses.dataclass(frozen=True)
class Auto(WireFormat):
    """``int8`` where the model of the network says that it pays, else as they are. An optimizer's gradients only."""

    name = "auto"
    of_gradients = True

    def _code(self) -> int:
        return Int8().code  # at most

    def __str__(self) -> str:
        return self.name

    def decided(self, pays: bool) -> WireFormat | None:
        common = {name: getattr(self, name) for name in _COMMON - {"code"}}
        return Int8(**common) if pays else None


def pays(code: int, hosts: Sequence[int], network: _core.Network, nbytes: int, memory: bool) -> bool:
    """Whether an all-reduce of so many bytes of float32 is expected to be faster as a format.

    `hosts`: of each rank; `memory`: ranks of a host share it.
    """
    menu = _core.Menu("allreduce", len(hosts), hosts, network)
    ways = [menu.options("", nbytes, memory=memory, wire=wire) for wire in (code, 0)]
    encoded, plain = (min((one.price.seconds for one in some), default=math.inf) for some in ways)
    return encoded < plain


@dataclasses.dataclass(frozen=True)
class OneBit(WireFormat):
    """A sign, and the mean magnitude of a group of elements (Seide et al., Interspeech 2014).

    Attributes:
        group: elements that share a mean: a multiple of 32 up to 2048.
        mean: "one", or "two": one of the positive elements, one of the negative ones.
    """

    group: int = 1024
    mean: str = "one"

    name = "onebit"

    def _code(self) -> int:
        if self.mean not in ("one", "two"):
            raise ValueError(f"onebit: mean is 'one' or 'two', not {self.mean!r}")
        return _core.wire_code(self.name, TWO_MEANS * (self.mean == "two"), self.group, 0.0)


@dataclasses.dataclass(frozen=True)
class Ternary(WireFormat):
    """-s, 0 or s. An element becomes 0 if it is below ``threshold`` times its group's mean magnitude; s is the mean of
    the others. ``stochastic``: s is the largest magnitude, and an element becomes 0 by chance, so that the mean is
    right (Wen et al., "TernGrad", arXiv:1705.07878)."""

    threshold: float = 0.75
    group: int = 512
    stochastic: bool = False

    name = "ternary"

    def _code(self) -> int:
        return _core.wire_code(self.name, DRAWN * self.stochastic, self.group, self.threshold)


@dataclasses.dataclass(frozen=True)
class TopK(WireFormat):
    """The largest elements, a share of ``ratio``, with where they are (Lin et al., "Deep gradient compression",
    arXiv:1712.01887). Which are the largest is told by a sample: 0.7 to 1.25 times as many as asked for are sent.

    Attributes:
        ratio: the share.
        values: "fp32" or "bf16".
        momentum: what an optimizer's gradients travel as are velocities with this decay, in place of the optimizer's
            own momentum, which then is 0 (momentum correction). PyTorch only.
        clip: before that, each gradient is shortened to a norm of clip / sqrt(ranks), 0: not. PyTorch only.
    """

    ratio: float = 0.01
    values: str = "fp32"
    momentum: float = 0.0
    clip: float = 0.0

    name = "topk"

    def _code(self) -> int:
        if self.values not in ("fp32", "bf16"):
            raise ValueError(f"topk: values is 'fp32' or 'bf16', not {self.values!r}")
        if not 0 <= self.momentum < 1 or self.clip < 0:
            raise ValueError("topk: momentum is in [0, 1), and clip not negative")
        return _core.wire_code(self.name, HALF_VALUES * (self.values == "bf16"), 0, self.ratio)

    def text(self) -> str:
        more = "".join(f", {name}={value}" for name in ("momentum", "clip") if (value := getattr(self, name)))
        return super().text() + more


@dataclasses.dataclass(frozen=True)
class Threshold(WireFormat):
    """Elements of at least ``tau``, each as tau with its sign (Strom, Interspeech 2015)."""

    tau: float = 0.01

    name = "threshold"

    def _code(self) -> int:
        return _core.wire_code(self.name, 0, 0, self.tau)


@dataclasses.dataclass(frozen=True)
class RandomK(WireFormat):
    """A share of ``ratio`` of the elements, drawn alike on all ranks, so that no message says where they are (Stich et
    al., arXiv:1809.07599)."""

    ratio: float = 0.01

    name = "randomk"

    def _code(self) -> int:
        return _core.wire_code(self.name, 0, 0, self.ratio)


@dataclasses.dataclass(frozen=True)
class PowerSGD(WireFormat):
    """A gradient, as a matrix of its first dimension by all others, travels as two factors of ``rank`` columns (Vogels
    et al., arXiv:1905.13727). They are sums themselves, so any all-reduce carries them. Optimizers only.

    Attributes:
        rank: columns of the factors; fewer where the matrix has fewer rows or columns.
        warm_start: each step goes on from the factors of the last one, else from random ones.
        min_compression_rate: gradients that would shrink less travel as they are.
    """

    rank: int = 4
    warm_start: bool = True
    min_compression_rate: float = 2.0

    name = "powersgd"
    of_gradients = True

    def _code(self) -> int:
        if self.rank < 1 or self.min_compression_rate < 1:
            raise ValueError("powersgd: rank and min_compression_rate are at least 1")
        return 0  # the factors travel as they are

    def __str__(self) -> str:
        how = "" if self.warm_start else ", warm_start=False"
        return f"powersgd(rank={self.rank}{how}, min_compression_rate={self.min_compression_rate:g})"

    def fits(self, shape: tuple[int, ...]) -> bool:
        if not super().fits(shape):
            return False
        rows, columns = shape[0], int(np.prod(shape[1:]))
        rank = min(self.rank, rows, columns)
        return (rows + columns) * rank * self.min_compression_rate < rows * columns


def _qsgd(bits: int = 8, **options: Any) -> Integers:
    """Integers of 8 or 4 bits, rounded by chance, without error feedback, which they need not.

    Raises:
        ValueError: other numbers of bits.
    """
    if bits not in (4, 8):
        raise ValueError(f"qsgd: bits is 4 or 8, not {bits}")
    kind = Int8 if bits == 8 else Int4
    return kind(stochastic=True, **({"error_feedback": False} | options))


class Compression:
    """Wire formats of the core. Each binding's ``Compression`` has these, and its own compressors."""

    auto = Auto()
    int8 = Int8()
    int4 = Int4()
    qsgd = staticmethod(_qsgd)
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

    What is owed is in units of the sum. It stays right when the number of ranks changes, or the wire format. Not to be
    used while a call with it is under way.

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


class _Owed:
    """What a feedback holds of a tensor, as NumPy takes it."""

    def __init__(self, feedback: _core.Feedback, tensor: int) -> None:
        self.feedback = feedback
        address, count = feedback.owed(tensor)
        self.__array_interface__ = {"version": 3, "typestr": "<f4", "shape": (count,), "data": (address, False)}


def owed_array(feedback: _core.Feedback, tensor: int) -> np.ndarray[Any, Any]:
    return np.asarray(_Owed(feedback, tensor))


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
