"""A rank's model for exchanges: fragments that are copied to flat arrays, and back.

Methods know only `Replica`; each framework has a subclass. `ArrayReplica` is the one for NumPy
arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringcomm._src.arrays.device.values import require_host_memory
from ringcomm._src.named.collectives import broadcast_
from ringcomm._src.named.process_sets import ProcessSet

Flat = NDArray[Any]
T = TypeVar("T")
SAMPLED = 1 << 20  # elements of a fragment that are used to measure the distance


def cut(sizes: Sequence[int], parts: int) -> list[list[int]]:
    """Divides items of these sizes into ``parts`` non-empty parts of about equal size, in order.

    Raises ValueError if there are fewer items than parts.
    """
    if len(sizes) < parts:
        raise ValueError(f"fragments={parts}: must not exceed the number of parameters, {len(sizes)}")
    made: list[list[int]] = [[]]
    total, done = sum(sizes), 0
    for item, size in enumerate(sizes):
        missing, left = parts - len(made), len(sizes) - item
        full = done + size / 2 > total * len(made) / parts
        if made[-1] and missing and (full or left == missing):
            made.append([])
        made[-1].append(item)
        done += size
    while len(made) < parts:  # the last items are small: take them from the longest part
        longest = max(range(len(made)), key=lambda i: len(made[i]))
        made.insert(longest + 1, [made[longest].pop()])
    return made


class Replica(ABC, Generic[T]):
    """Weights in fragments, and statistics (BatchNorm's), which belong to the last fragment.

    ``dtype``: dtype of flat arrays: float64 if an item is float64, else float32, also for float16
    items. ``heads``: number of weights in each fragment; ``sizes``: number of weights and
    statistics.
    """

    dtype: Any

    def __init__(self, weights: Sequence[T], statistics: Sequence[T] = (), fragments: int = 1) -> None:
        parts = cut([self.count(item) for item in weights], fragments)
        self.fragments = [[weights[item] for item in part] for part in parts]
        self.heads = [sum(map(self.count, part)) for part in self.fragments]
        self.fragments[-1] += statistics
        self.sizes = [sum(map(self.count, part)) for part in self.fragments]
        wide = any(self.is_double(item) for part in self.fragments for item in part)
        self.dtype = np.dtype(np.float64 if wide else np.float32)

    @staticmethod
    @abstractmethod
    def count(item: T) -> int:
        """Returns the number of real numbers in the item."""

    @staticmethod
    @abstractmethod
    def is_double(item: T) -> bool:
        """Returns True if float32 would lose digits of the item."""

    @abstractmethod
    def copy_out(self, items: Sequence[T], parts: Sequence[Flat]) -> None:
        """Copies each item's numbers into its part."""

    @abstractmethod
    def copy_in(self, items: Sequence[T], parts: Sequence[Flat]) -> None:
        """Copies each part into its item."""

    def items(self, fragment: int) -> Sequence[T]:
        """Returns the current items of a fragment."""
        return self.fragments[fragment]

    def read(self, fragment: int, flat: Flat) -> None:
        self.copy_out(self.items(fragment), self._parts(fragment, flat))

    def write(self, fragment: int, flat: Flat) -> None:
        self.copy_in(self.items(fragment), self._parts(fragment, flat))

    def flat_copy(self, fragment: int) -> Flat:
        """Returns the fragment in a new array."""
        flat = np.empty(self.sizes[fragment], self.dtype)
        self.read(fragment, flat)
        return flat

    def broadcast_initial(self, fragment: int, name: str, process_set: ProcessSet) -> Flat:
        """Broadcasts the first rank's numbers, by an operation of this name. Collective."""
        flat = self.flat_copy(fragment)
        if len(flat):
            broadcast_(flat, process_set.ranks[0], name, process_set)
        self.write(fragment, flat)
        return flat

    @contextmanager
    def temporarily(self, flats: Sequence[Flat]) -> Iterator[None]:
        """Writes these fragments for the duration of the context, then restores the old ones."""
        saved = [self.flat_copy(number) for number in range(len(self.sizes))]
        for number, flat in enumerate(flats):
            self.write(number, flat)
        try:
            yield
        finally:
            for number, flat in enumerate(saved):
                self.write(number, flat)

    def distance(self, fragment: int, flat: Flat) -> float:
        """Returns the root mean square of weights - ``flat``, over about SAMPLED elements."""
        items: list[T] = []
        parts: list[Flat] = []
        left = SAMPLED
        for item, part in zip(self.items(fragment), self._parts(fragment, flat), strict=True):
            if not items or len(part) <= left:
                items.append(item)
                parts.append(part)
                left -= len(part)
        own_parts = [np.empty_like(part) for part in parts]
        self.copy_out(items, own_parts)
        squares = sum(float(np.dot(d, d)) for d in (a - b for a, b in zip(own_parts, parts, strict=True)))
        return float(np.sqrt(squares / max(sum(map(len, parts)), 1)))

    def _parts(self, fragment: int, flat: Flat) -> list[Flat]:
        ends = np.cumsum([self.count(item) for item in self.fragments[fragment]])
        return np.split(flat, ends[:-1])


class ArrayReplica(Replica["np.ndarray[Any, Any]"]):
    """A replica of NumPy arrays of floating dtypes.

    Raises UnsupportedError for arrays of a GPU, which NumPy cannot change in place.
    """

    @staticmethod
    def count(item: np.ndarray[Any, Any]) -> int:
        require_host_memory(item, "this method")
        return item.size * (2 if item.dtype.kind == "c" else 1)

    @staticmethod
    def is_double(item: np.ndarray[Any, Any]) -> bool:
        return item.dtype.char in "dDgG"

    def copy_out(self, items: Sequence[np.ndarray[Any, Any]], parts: Sequence[Flat]) -> None:
        for item, part in zip(items, parts, strict=True):
            self._shaped(item, part)[...] = self._real(item)

    def copy_in(self, items: Sequence[np.ndarray[Any, Any]], parts: Sequence[Flat]) -> None:
        for item, part in zip(items, parts, strict=True):
            self._real(item)[...] = self._shaped(item, part)

    @staticmethod
    def _real(item: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns a view of real numbers; complex arrays get a last dimension of two."""
        if item.dtype.kind != "c":
            return item
        pairs = np.lib.stride_tricks.as_strided(
            item.real, (*item.shape, 2), (*item.strides, item.real.itemsize), writeable=True
        )
        return pairs

    @classmethod
    def _shaped(cls, item: np.ndarray[Any, Any], part: Flat) -> Flat:
        return part.reshape((*item.shape, 2) if item.dtype.kind == "c" else item.shape)


def next_number(process_set: ProcessSet) -> int:
    """Returns the number of a new method that uses the set: the same on all its ranks."""
    return next(process_set.optimizers)
