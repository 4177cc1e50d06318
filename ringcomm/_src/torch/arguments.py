"""The arguments of DistributedOptimizer as `Settings`, and the checks that they pass first."""

from __future__ import annotations

import hashlib
import itertools
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ringcomm._src.base.ops import Average, Sum
from ringcomm._src.base.wire_formats import OneBit, PowerSGD, Threshold, TopK, WireFormat
from ringcomm._src.compression.compression import NoneCompressor, unused_patterns
from ringcomm._src.torch.compression import Parts, format_of, is_lossy, parts_of
from ringcomm._src.torch.units import Units


@dataclass
class Settings:
    """Arguments of DistributedOptimizer, and names, scales and formats that follow from them."""

    op: Any
    predivide: float
    compression: Any
    passes: int
    groups: Any  # None, a number, or a list of lists of parameters
    sparse_as_dense: bool
    process_set: Any
    algorithm: str | None = None  # None: RINGCOMM_ALGORITHM, or the core's choice
    overlap_forward: bool = False
    units: Units = field(default_factory=Units, repr=False)  # units of the gradients, which a loss scale changes
    transforms: list[Any] = field(default_factory=list, repr=False)  # GradientTransforms, in order
    key: int = 0  # hash of the parameters' names and shapes (key_of)
    _numbers: Iterator[int] | None = field(default=None, repr=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self.number  # noqa: B018  (assigns the number now: optimizers are numbered in the order of their creation)

    @property
    def number(self) -> int:
        """Number of this optimizer in the process set, equal on all its ranks.

        Threads other than the main thread may create optimizers in different orders on different
        ranks. Their optimizers have numbers that contain `key`.
        """
        if self._numbers is not self.process_set.optimizers:
            self._numbers = self.process_set.optimizers
            if threading.current_thread() is threading.main_thread():
                self._number = next(self._numbers)
            else:
                self._number = (self.key << 16) + next(self.process_set.optimizers_of_threads[self.key])
        return self._number

    @property
    def name(self) -> str:
        return f"optimizer{self.number}"

    def scales(self) -> tuple[float, float]:
        """Returns the factors that multiply gradients before and after the sum."""
        return (1.0 / self.predivide, self.predivide) if self.op == Average else (1.0, 1.0)

    def residual_scale(self) -> float:
        """Returns the factor that converts an encoder's residual to units of the reduced gradient."""
        return self.scales()[1] / (self.process_set.size() if self.op == Average else 1)

    def text(self) -> str:
        """Returns a text of these settings that must be equal on all ranks."""
        return (
            f"op {getattr(self.op, 'name', self.op)}, gradient_predivide_factor {self.predivide}, "
            f"compression {self._compression_text()}, sparse_as_dense {self.sparse_as_dense}, "
            f"algorithm {self.algorithm}{', overlap_forward' if self.overlap_forward else ''}"
        )

    def _compression_text(self) -> str:
        if isinstance(self.compression, Mapping):
            return f"by pattern {', '.join(self.compression)}"
        if isinstance(self.compression, WireFormat):
            return self.compression.text()
        return getattr(self.compression, "__name__", type(self.compression).__name__)

    def format_of(self, name: str, parameter: torch.Tensor) -> WireFormat | torch.dtype | None:
        """Returns the format that this gradient has in a bucket; None: it is sent unchanged."""
        return format_of(self.compression, name, parameter)

    def by_name(self) -> Parts:
        """Returns the compression of gradients that are not in a bucket.

        Formats with error feedback store their residuals per bucket, so these gradients are sent
        uncompressed instead.
        """
        return Parts(None, NoneCompressor) if is_lossy(self.compression) else parts_of(self.compression)


def key_of(names: list[tuple[str, torch.Tensor]]) -> int:
    """Returns a positive hash of the names and shapes of parameters."""
    text = "\0".join(f"{name} {tuple(parameter.shape)}" for name, parameter in names).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=5).digest(), "little") | 1


def format_text(wire: WireFormat | torch.dtype | None) -> str:
    """Returns the properties of a format that must be equal on all ranks, as text."""
    return wire.text() if isinstance(wire, WireFormat) else str(wire)


def check_compression(compression: Any, op: Any) -> None:
    if is_lossy(compression) and op not in (Average, Sum):
        raise ValueError(f"compression={compression} supports sums and averages, not op={getattr(op, 'name', op)}")


def warn_of_unused(compression: Any, names: list[tuple[str, torch.Tensor]]) -> None:
    """Warns about patterns that match no parameter."""
    unused = unused_patterns(compression, (name for name, _ in names))
    if unused:
        warnings.warn(
            f"compression: no parameter name matches {', '.join(map(repr, unused))}. The names are those in "
            f"named_parameters, for example {', '.join(repr(name) for name, _ in names[:3])}",
            stacklevel=3,
        )


def require_host(wire: Any, parameter: torch.Tensor) -> None:
    """Raises ValueError if the format needs host memory and the parameter is on a device."""
    if isinstance(wire, PowerSGD) and not parameter.is_cpu:
        raise ValueError(
            f"compression={wire} works on gradients in CPU memory only, not on {parameter.device}. Use "
            "hvd.Compression.int8, int4, onebit or topk for a model on a GPU, or keep the model on the CPU"
        )


def drops_most(compression: Any, names: list[tuple[str, torch.Tensor]]) -> bool:
    """Returns True if gradients are sent as signs, or only few of their elements are sent."""
    if not is_lossy(compression):
        return False
    return any(isinstance(format_of(compression, *named), OneBit | TopK | Threshold) for named in names)


def names_of(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> list[tuple[str, torch.Tensor]]:
    """Returns the optimizer's parameters with the caller's names (checked) or generated names."""
    in_groups = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        return [
            (f"allreduce.noname.{i}.{j}", p)
            for i, group in enumerate(optimizer.param_groups)
            for j, p in enumerate(group["params"])
        ]
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in named):
        raise ValueError("named_parameters must be (name, parameter) tuples, as model.named_parameters() returns them")
    duplicates = sorted(name for name, count in Counter(name for name, _ in named).items() if count > 1)
    if duplicates:
        raise ValueError(f"named_parameters has these names more than once: {', '.join(duplicates)}")
    names = {id(p): name for name, p in named}
    unnamed = [p for p in in_groups if id(p) not in names]
    if unnamed:
        raise ValueError(
            "named_parameters does not contain these parameters of the optimizer, given by their shapes: "
            + ", ".join(str(tuple(p.shape)) for p in unnamed)
        )
    # The result has the order of the groups. named_parameters may have another order, and more
    # parameters.
    return [(names[id(p)], p) for p in in_groups]


def check_groups(groups: Any) -> None:
    if groups is None:
        return
    if not isinstance(groups, list):
        if isinstance(groups, int) and groups > 0:
            return
        raise ValueError("groups must be a positive number, or a list of lists of parameters")
    seen: set[int] = set()
    for parameter in itertools.chain.from_iterable(groups):
        if not isinstance(parameter, torch.Tensor):
            raise ValueError("groups must contain tensors only")
        if id(parameter) in seen:
            raise ValueError("a parameter is in groups more than once")
        seen.add(id(parameter))
