"""Residuals of compressed gradients outside of ringcomm's optimizers: of graph operations and lists of gradients.

They are keyed by the operations' names; `ringcomm._src.named.compression_state` saves and loads them.
"""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.base.ops import Op
from ringcomm._src.named.process_sets import ProcessSet

Floats = np.ndarray[Any, Any]  # float32, one-dimensional

_numbers = itertools.count()
_stores: weakref.WeakValueDictionary[int, ResidualStore] = weakref.WeakValueDictionary()
waiting: dict[ProcessSet, dict[str, Floats]] = {}  # loaded residuals of operations that are not made yet


class ResidualStore(ABC):
    """The residuals of a list of operations on one tensor each; their results are `post` times the sum or average."""

    def __init__(self, process_set: ProcessSet, names: Sequence[str], op: Any, post: float) -> None:
        self.process_set, self.names = process_set, names
        self._op, self._post = op, post

    def register(self) -> None:
        """Adds this store to those that `of` returns, and restores residuals that were loaded for it."""
        _stores[next(_numbers)] = self
        loaded = waiting.get(self.process_set, {})
        for index, name in enumerate(self.names):
            if name in loaded:
                self.restore(index, loaded.pop(name))

    @abstractmethod
    def residual(self, index: int) -> Floats:
        """Returns an operation's residual, in units of the sum; empty if there is none yet."""

    @abstractmethod
    def set_residual(self, index: int, values: Floats) -> None:
        """Replaces an operation's residual."""

    def saved(self, index: int) -> Floats:
        """Returns an operation's residual in units of the results."""
        return self.residual(index) * np.float32(self._worth())

    def restore(self, index: int, values: Floats) -> None:
        """Replaces an operation's residual by a result of :meth:`saved` of any rank."""
        self.set_residual(index, values / np.float32(self._worth()))

    def _worth(self) -> float:
        return self._post / (self.process_set.size() if self._op == Op.Average else 1)


def of(process_set: ProcessSet) -> list[ResidualStore]:
    """Returns the stores of a process set, in the order of registration."""
    return [one for _, one in sorted(_stores.items()) if one.process_set is process_set]
