"""Reads mpi4py's buffer specifications ([buffer, counts, displacements, datatype]) as one-dimensional NumPy arrays.

ringcomm takes arrays as they are and counts in rows. Each specification therefore becomes an array of its elements; one
with displacements is packed before a call and unpacked after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

BYTES = (MPI.BYTE, MPI.PACKED)


def dtype_of(datatype: Any) -> np.dtype[Any]:
    """The NumPy dtype of an MPI datatype, or of its typecode."""
    if isinstance(datatype, str):
        datatype = MPI.Datatype.fromcode(datatype)
    return np.dtype("u1") if datatype in BYTES else np.dtype(dtlib.to_numpy_dtype(datatype))


def imitation(buffer: Any) -> bool:
    """Whether it is one of the suite's arrays with DLPack or __cuda_array_interface__, whose `array` holds the memory.

    Neither protocol can be used as it is: the GPU arrays are host memory, and the DLPack tensors are freed with their
    capsule, while NumPy (as DLPack allows) keeps the tensor for longer.
    """
    return hasattr(buffer, "__cuda_array_interface__") or (
        hasattr(buffer, "__dlpack__") and not isinstance(buffer, np.ndarray)
    )


def memory_of(buffer: Any) -> Any:
    """A NumPy array of any shape on the memory of `buffer`."""
    if imitation(buffer):
        buffer = buffer.array
    return buffer if isinstance(buffer, np.ndarray) else np.asarray(memoryview(buffer))


@dataclass
class Elements:
    """What one specification names: `flat` views its elements; `given` is what a user of ringcomm would pass."""

    flat: Any
    given: Any


def _split(spec: Any) -> tuple[Any, list[Any], Any]:
    """Buffer, counts and displacements as far as given, datatype or None."""
    if not isinstance(spec, list | tuple):
        return spec, [], None
    buffer, *rest = spec
    datatype = None
    if rest and (isinstance(rest[-1], MPI.Datatype | str) or _datatypes(rest[-1])):
        datatype = rest.pop()
    if len(rest) == 1 and isinstance(rest[0], tuple):
        rest = list(rest[0])
    return buffer, rest, datatype


def _datatypes(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], MPI.Datatype)


def _typed(buffer: Any, datatype: Any) -> tuple[Any, bool]:
    """All elements of `buffer`, and whether they are those of an array of one dimension and of its own dtype."""
    if buffer is None:
        return np.empty(0, np.uint8 if datatype is None else dtype_of(datatype)), False
    whole = memory_of(buffer)
    flat = whole.reshape(-1)
    if datatype is None or dtype_of(datatype) == flat.dtype:
        return flat, whole.ndim == 1
    return flat.view(dtype_of(datatype)), False


def elements(spec: Any) -> Elements:
    """Of a specification with at most one count and one displacement."""
    buffer, numbers, datatype = _split(spec)
    flat, plain = _typed(buffer, datatype)
    first = numbers[1] if len(numbers) > 1 and numbers[1] is not None else 0
    count = numbers[0] if numbers and numbers[0] is not None else flat.size - first
    part = flat[first : first + count]
    if part.size != count:
        raise ValueError(f"{count} elements from {first} on are more than the {flat.size} of the buffer")
    plain = plain and count == flat.size and not imitation(buffer)
    return Elements(part, buffer if plain else part)


class Parts:
    """The parts of several ranks in one buffer, by counts and displacements. `packed` is what ringcomm reads or writes:
    the memory itself if the parts follow one another, else a copy, which `pack` fills and `unpack` writes back."""

    def __init__(self, spec: Any, size: int) -> None:
        buffer, numbers, datatype = _split(spec)
        self.flat, _ = _typed(buffer, datatype)
        counts, displacements = (*numbers, None, None)[:2]
        if counts is None:
            counts = self.flat.size // size
        self.counts = [counts] * size if isinstance(counts, int) else [int(count) for count in counts]
        self.starts = self._starts(displacements)
        ends = [start + count for start, count in zip(self.starts, self.counts, strict=True)]
        self.dense = self.starts[0] == 0 and ends[:-1] == self.starts[1:]
        self.packed = self.flat[: ends[-1]] if self.dense else np.empty(sum(self.counts), self.flat.dtype)

    @classmethod
    def in_bytes(cls, spec: Any, size: int) -> Parts:
        """Of Alltoallw: displacements in bytes, and a datatype a rank."""
        buffer, *numbers, datatypes = spec
        counts, starts = numbers[0] if len(numbers) == 1 else numbers
        sizes = [count * datatype.Get_size() for count, datatype in zip(counts, datatypes, strict=True)]
        return cls([memory_of(buffer).reshape(-1).view(np.uint8), (sizes, starts), MPI.BYTE], size)

    def _starts(self, displacements: int | Sequence[int] | None) -> list[int]:
        if displacements is None:
            return [sum(self.counts[:rank]) for rank in range(len(self.counts))]
        if isinstance(displacements, int):
            return [rank * displacements for rank in range(len(self.counts))]
        return [int(start) for start in displacements]

    def _pairs(self) -> Any:
        first = 0
        for start, count in zip(self.starts, self.counts, strict=True):
            yield self.packed[first : first + count], self.flat[start : start + count]
            first += count

    def pack(self) -> None:
        if not self.dense:
            for packed, part in self._pairs():
                packed[...] = part

    def unpack(self) -> None:
        if not self.dense:
            for packed, part in self._pairs():
                part[...] = packed
