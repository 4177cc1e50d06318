"""Who keeps what encoders have left out of gradients where no optimizer of ours does: a graph's operations, and lists
of gradients. It is found again by the operations' names (`ringcomm._src.named.compression_state`)."""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.base.ops import Op
from ringcomm._src.named.process_sets import ProcessSet

Floats = np.ndarray[Any, Any]  # of float32, with one dimension

_numbers = itertools.count()
_stores: weakref.WeakValueDictionary[int, ResidualStore] = weakref.WeakValueDictionary()
waiting: dict[ProcessSet, dict[str, Floats]] = {}  # what has been loaded, for operations that have not been made yet


class ResidualStore(ABC):
    """Of some operations, each of one tensor, whose results are `post` times their sum or average."""

    def __init__(self, process_set: ProcessSet, names: Sequence[str], op: Any, post: float) -> None:
        self.process_set, self.names = process_set, names
        self._op, self._post = op, post

    def register(self) -> None:
        """From now on it is found; and it is given what waits for it."""
        _stores[next(_numbers)] = self
        loaded = waiting.get(self.process_set, {})
        for index, name in enumerate(self.names):
            if name in loaded:
                self.restore(index, loaded.pop(name))

    @abstractmethod
    def residual(self, index: int) -> Floats:
        """In units of the sum; empty if nothing is known yet."""

    @abstractmethod
    def set_residual(self, index: int, values: Floats) -> None:
        """In place of what is owed."""

    def saved(self, index: int) -> Floats:
        """Measured as the results are."""
        return self.residual(index) * np.float32(self._worth())

    def restore(self, index: int, values: Floats) -> None:
        """What :meth:`saved` gave, on whatever rank."""
        self.set_residual(index, values / np.float32(self._worth()))

    def _worth(self) -> float:
        return self._post / (self.process_set.size() if self._op == Op.Average else 1)


def of(process_set: ProcessSet) -> list[ResidualStore]:
    """In the order in which they were made."""
    return [one for _, one in sorted(_stores.items()) if one.process_set is process_set]
