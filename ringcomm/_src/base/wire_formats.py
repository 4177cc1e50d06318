"""Wire formats with parameters, as values: the encodings of elements between hosts (csrc/codecs).

Formats that only round, for example bfloat16, have a name and no class. The formats here leave out
part of the data, and add the residual to the next data (*error feedback*). They are quantisers
(int8, int4, onebit, ternary), sparsifiers (topk, threshold) and low-rank factors (powersgd).
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
    """A wire format with its parameters. Instances are immutable.

    A call of an instance returns a copy with changed parameters: ``Compression.topk(0.001)``.

    Attributes
    ----------
    error_feedback
        An optimizer adds the residual of a gradient to the next gradient. Error feedback costs 8
        bytes of memory for each element that this rank encodes.
    everywhere
        The ranks of one host also exchange an optimizer's gradients as encoded messages. This is
        slower, and meant for studying convergence on one machine.
    min_elements
        Gradients with fewer elements, and those of one dimension, are sent unchanged.
    warmup_steps
        Number of first steps of an optimizer that use ``warmup`` (int8 unless it is given) instead.

    Raises
    ------
    ValueError
        A parameter is out of range; raised by the constructor.
    """

    error_feedback: bool = True
    everywhere: bool = False
    min_elements: int = 1024
    warmup_steps: int = 0
    warmup: WireFormat | None = None

    name: ClassVar[str]
    of_gradients: ClassVar[bool] = False  # for an optimizer's gradients only, not for single operations

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", self._code())
        if self.min_elements < 0 or self.warmup_steps < 0:
            raise ValueError(f"{self.name}: min_elements and warmup_steps must not be negative")

    def _code(self) -> int:
        return _core.wire_code(self.name)

    code: int = dataclasses.field(init=False, repr=False, compare=False, default=0)  # ranks compare it

    def __call__(self, *args: Any, **changes: Any) -> Any:
        parameter_names = [f.name for f in dataclasses.fields(self) if f.name not in _COMMON]
        if len(args) > len(parameter_names):
            raise TypeError(
                f"{self.name} takes at most {len(parameter_names)} parameters by position: {', '.join(parameter_names)}"
            )
        return dataclasses.replace(self, **dict(zip(parameter_names, args, strict=False)), **changes)

    def __str__(self) -> str:
        return _core.wire_text(self.code)

    def text(self) -> str:
        """Returns a text of all parameters that must be identical on all ranks."""
        warmup = f" after {self.warmup_steps} steps of {self.warmup_format()}" if self.warmup_steps else ""
        flags = [name for name in ("error_feedback", "everywhere") if getattr(self, name)]
        return f"{self}{warmup} from {self.min_elements} elements {' '.join(flags)}"

    def warmup_format(self) -> WireFormat:
        """Returns the wire format of an optimizer's warmup steps."""
        return self.warmup or Int8()

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Returns True if an optimizer compresses gradients of this shape."""
        return len(shape) >= 2 and int(np.prod(shape)) >= self.min_elements


_COMMON = {f.name for f in dataclasses.fields(WireFormat)}


@dataclasses.dataclass(frozen=True)
class Integers(WireFormat):
    """Integer multiples of a step size, in 8 or 4 bits.

    Each group of elements has one step size, a float32. Source: Alistarh et al., "QSGD",
    arXiv:1610.02132 (stochastic rounding).

    Attributes
    ----------
    group
        Number of elements that share a step size: a multiple of 32 up to 2048.
    stochastic
        Rounds up or down at random, so that the expected value is exact.
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
    """Uses ``int8`` if the cost model predicts a gain, else no encoding. For optimizers only."""

    name = "auto"
    of_gradients = True

    def _code(self) -> int:
        return Int8().code  # the code that it may resolve to

    def __str__(self) -> str:
        return self.name

    def resolve(self, predicts_gain: bool) -> WireFormat | None:
        common = {name: getattr(self, name) for name in _COMMON - {"code"}}
        return Int8(**common) if predicts_gain else None


def predicts_gain(code: int, hosts: Sequence[int], network: _core.Network, nbytes: int, memory: bool) -> bool:
    """Returns True if the wire format `code` should speed up an all-reduce of `nbytes` of float32.

    `hosts`: host index of each rank; `memory`: the ranks of a host share memory.
    """
    menu = _core.Menu("allreduce", len(hosts), hosts, network)
    candidates = [menu.options("", nbytes, memory=memory, wire=wire) for wire in (code, 0)]
    encoded, plain = (min((option.price.seconds for option in options), default=math.inf) for options in candidates)
    return encoded < plain


@dataclasses.dataclass(frozen=True)
class OneBit(WireFormat):
    """A sign for each element, and the mean magnitude of each group.

    Source: Seide et al., Interspeech 2014.

    Attributes
    ----------
    group
        Number of elements that share a mean: a multiple of 32 up to 2048.
    mean
        "one", or "two": separate means of the positive and the negative elements.
    """

    group: int = 1024
    mean: str = "one"

    name = "onebit"

    def _code(self) -> int:
        if self.mean not in ("one", "two"):
            raise ValueError(f"onebit: mean must be 'one' or 'two', not {self.mean!r}")
        return _core.wire_code(self.name, TWO_MEANS * (self.mean == "two"), self.group, 0.0)


@dataclasses.dataclass(frozen=True)
class Ternary(WireFormat):
    """-s, 0 or s for each element, with one magnitude s for each group.

    An element becomes 0 if its magnitude is below ``threshold`` times its group's mean magnitude; s
    is the mean of the remaining magnitudes. With ``stochastic``, s is the largest magnitude, and an
    element becomes 0 at random, so that the expected value is exact. Source: Wen et al.,
    "TernGrad", arXiv:1705.07878.

    Attributes
    ----------
    threshold
        Fraction of the mean magnitude below which an element becomes 0; unused if ``stochastic``.
    group
        Number of elements that share a magnitude: a multiple of 32 up to 2048.
    stochastic
        Rounds at random.
    """

    threshold: float = 0.75
    group: int = 512
    stochastic: bool = False

    name = "ternary"

    def _code(self) -> int:
        return _core.wire_code(self.name, DRAWN * self.stochastic, self.group, self.threshold)


@dataclasses.dataclass(frozen=True)
class TopK(WireFormat):
    """The largest elements, a fraction ``ratio`` of all, with their indices.

    The threshold is estimated from a sample: 0.7 to 1.25 times the requested number of elements is
    sent. Source: Lin et al., "Deep gradient compression", arXiv:1712.01887.

    Attributes
    ----------
    ratio
        Fraction of the elements that is sent.
    values
        "fp32" or "bf16", the encoding of the values.
    momentum
        Decay of the velocities that an optimizer sends in place of gradients (momentum correction);
        the optimizer's own momentum must then be 0. PyTorch only.
    clip
        Each gradient is clipped to a norm of clip / sqrt(ranks) before the momentum correction; 0:
        no clipping. PyTorch only.
    """

    ratio: float = 0.01
    values: str = "fp32"
    momentum: float = 0.0
    clip: float = 0.0

    name = "topk"

    def _code(self) -> int:
        if self.values not in ("fp32", "bf16"):
            raise ValueError(f"topk: values must be 'fp32' or 'bf16', not {self.values!r}")
        if not 0 <= self.momentum < 1 or self.clip < 0:
            raise ValueError("topk: momentum must be in [0, 1), and clip must not be negative")
        return _core.wire_code(self.name, HALF_VALUES * (self.values == "bf16"), 0, self.ratio)

    def text(self) -> str:
        more = "".join(f", {name}={value}" for name in ("momentum", "clip") if (value := getattr(self, name)))
        return super().text() + more


@dataclasses.dataclass(frozen=True)
class Threshold(WireFormat):
    """Elements of magnitude ``tau`` or more, each sent as tau with its sign.

    Source: Strom, Interspeech 2015.

    Attributes
    ----------
    tau
        Smallest magnitude that is sent, and the magnitude that the receiver gets.
    """

    tau: float = 0.01

    name = "threshold"

    def _code(self) -> int:
        return _core.wire_code(self.name, 0, 0, self.tau)


@dataclasses.dataclass(frozen=True)
class PowerSGD(WireFormat):
    """A gradient, reshaped to a matrix, as two factors of ``rank`` columns each.

    The first dimension of the gradient gives the rows, the product of the other dimensions the
    columns. The factors can be summed, so any all-reduce can reduce them. Optimizers only. Source:
    Vogels et al., arXiv:1905.13727.

    Attributes
    ----------
    rank
        Number of columns of the factors; fewer if the matrix has fewer rows or columns.
    warm_start
        True: each step starts from the factors of the previous step; False: from random factors.
    min_compression_rate
        Gradients with a lower compression rate are sent unchanged.
    """

    rank: int = 4
    warm_start: bool = True
    min_compression_rate: float = 2.0

    name = "powersgd"
    of_gradients = True

    def _code(self) -> int:
        if self.rank < 1 or self.min_compression_rate < 1:
            raise ValueError("powersgd: rank and min_compression_rate must be at least 1")
        return 0  # the factors are sent unchanged

    def __str__(self) -> str:
        suffix = "" if self.warm_start else ", warm_start=False"
        return f"powersgd(rank={self.rank}{suffix}, min_compression_rate={self.min_compression_rate:g})"

    def fits(self, shape: tuple[int, ...]) -> bool:
        if not super().fits(shape):
            return False
        rows, columns = shape[0], int(np.prod(shape[1:]))
        rank = min(self.rank, rows, columns)
        return (rows + columns) * rank * self.min_compression_rate < rows * columns


def qsgd(bits: int = 8, **options: Any) -> Integers:
    """Returns a format of 8- or 4-bit integers with stochastic rounding (QSGD).

    Source: Alistarh et al., "QSGD", arXiv:1610.02132.

    Parameters
    ----------
    bits : int
        8 or 4; default 8.
    **options : Any
        Fields of the format, for example ``group``; ``error_feedback`` is False by default.

    Raises
    ------
    ValueError
        ``bits`` is neither 4 nor 8.
    """
    if bits not in (4, 8):
        raise ValueError(f"qsgd: bits must be 4 or 8, not {bits}")
    kind = Int8 if bits == 8 else Int4
    return kind(stochastic=True, **({"error_feedback": False} | options))
