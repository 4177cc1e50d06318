"""What is done with the gradients of one optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ringcomm.ops import Average
from ringcomm.plans import Limits


@dataclass
class Settings:
    """The arguments of DistributedOptimizer."""

    op: Any
    predivide: float
    compression: Any
    passes: int
    groups: Any  # None, a number, or a list of lists of parameters
    sparse_as_dense: bool
    process_set: Any
    limits: Limits
    _numbers: Iterator[int] | None = field(default=None, repr=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self.number  # noqa: B018  (numbered in the order in which optimizers are made)

    @property
    def number(self) -> int:
        """Among the optimizers that have used the process set since it was added: the same on every rank of it."""
        if self._numbers is not self.process_set.optimizers:
            self._numbers = self.process_set.optimizers
            self._number = next(self._numbers)
        return self._number

    @property
    def name(self) -> str:
        return f"optimizer{self.number}"

    def scales(self) -> tuple[float, float]:
        """(before, after) the sum."""
        return (1.0 / self.predivide, self.predivide) if self.op == Average else (1.0, 1.0)

    def text(self) -> str:
        """For a comparison between ranks."""
        compression = getattr(self.compression, "__name__", str(self.compression))
        return (
            f"op {self.op}, gradient_predivide_factor {self.predivide}, compression {compression}, "
            f"sparse_as_dense {self.sparse_as_dense}"
        )
