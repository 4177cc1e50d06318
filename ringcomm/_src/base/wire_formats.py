"""Wire formats with their parameters, as values: what the core encodes elements as between hosts (csrc/codecs).

Some round, such as bfloat16, and have a name only. Those here lose something each time, and keep what they have lost
for the next time (*error feedback*): quantisers (int8, int4, onebit, ternary), sparsifiers (topk, threshold),
and two thin factors of a matrix (powersgd).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ringcomm._src.core import _core

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
        return self.warmup or Int8()

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


def qsgd(bits: int = 8, **options: Any) -> Integers:
    """Integers of 8 or 4 bits, rounded by chance, without error feedback, which they need not.

    Raises:
        ValueError: other numbers of bits.
    """
    if bits not in (4, 8):
        raise ValueError(f"qsgd: bits is 4 or 8, not {bits}")
    kind = Int8 if bits == 8 else Int4
    return kind(stochastic=True, **({"error_feedback": False} | options))
