"""Residuals of compressed gradients of graph operations and of lists of gradients.

They are keyed by the operations' names; `ringcomm._src.named.compression_state` saves and loads
them. Optimizers of ``ringcomm.torch`` store their own residuals.
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
loaded_residuals: dict[ProcessSet, dict[str, Floats]] = {}  # loaded residuals of operations that are not made yet


class ResidualStore(ABC):
    """The residuals of a list of operations on one tensor each.

    The result of an operation is `post` times the sum or average.
    """

    def __init__(self, process_set: ProcessSet, names: Sequence[str], op: Any, post: float) -> None:
        self.process_set, self.names = process_set, names
        self._op, self._post = op, post

    def register(self) -> None:
        """Adds this store to the results of `of`, and restores residuals that wait in `waiting`."""
        _stores[next(_numbers)] = self
        residuals = loaded_residuals.get(self.process_set, {})
        for index, name in enumerate(self.names):
            if name in residuals:
                self.restore(index, residuals.pop(name))

    @abstractmethod
    def residual(self, index: int) -> Floats:
        """Returns an operation's residual, in units of the sum; empty if there is none yet."""

    @abstractmethod
    def set_residual(self, index: int, values: Floats) -> None:
        """Replaces an operation's residual."""

    def saved(self, index: int) -> Floats:
        """Returns an operation's residual in units of the results."""
        return self.residual(index) * np.float32(self._scale())

    def restore(self, index: int, values: Floats) -> None:
        """Replaces an operation's residual by the result of :meth:`saved` on any rank."""
        self.set_residual(index, values / np.float32(self._scale()))

    def _scale(self) -> float:
        return self._post / (self.process_set.size() if self._op == Op.Average else 1)


def of(process_set: ProcessSet) -> list[ResidualStore]:
    """Returns the stores of a process set, in the order of registration."""
    return [store for _, store in sorted(_stores.items()) if store.process_set is process_set]
