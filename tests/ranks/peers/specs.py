"""Reads mpi4py's buffer specifications ([buffer, counts, displacements, datatype]) as 1-D arrays.

ringcomm takes arrays as they are and counts in rows. Each specification therefore becomes an array
of its elements; one with displacements is packed before a call and unpacked after it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

BYTES = (MPI.BYTE, MPI.PACKED)


def dtype_of(datatype: Any) -> np.dtype[Any]:
    """Returns the NumPy dtype of an MPI datatype, or of its typecode."""
    if isinstance(datatype, str):
        datatype = MPI.Datatype.fromcode(datatype)
    return np.dtype("u1") if datatype in BYTES else np.dtype(dtlib.to_numpy_dtype(datatype))


def imitation(buffer: Any) -> bool:
    """Returns True for the suite's arrays of devices; their `array` holds the memory.

    Neither protocol can be used as it is: the GPU arrays are host memory, and the DLPack tensors
    are freed with their capsule, while NumPy (as DLPack allows) keeps the tensor for longer.
    """
    return hasattr(buffer, "__cuda_array_interface__") or (
        hasattr(buffer, "__dlpack__") and not isinstance(buffer, np.ndarray)
    )


def memory_of(buffer: Any) -> Any:
    """Returns a NumPy array, of any shape, on the memory of `buffer`."""
    if imitation(buffer):
        buffer = buffer.array
    return buffer if isinstance(buffer, np.ndarray) else np.asarray(memoryview(buffer))


@dataclass
class Elements:
    """A specification's elements: `flat` is a view; `given` is the caller's array."""

    flat: Any
    given: Any


def _split(spec: Any) -> tuple[Any, Any, Any, Any]:
    """Returns buffer, counts, displacements and datatypes; None for a part that is not given."""
    if not isinstance(spec, list | tuple):
        return spec, None, None, None
    buffer, *rest = spec
    datatype = rest.pop() if len(rest) == 3 or (len(rest) in (1, 2) and _is_datatype(rest[-1])) else None
    if len(rest) == 1 and isinstance(rest[0], tuple):
        rest = list(rest[0])
    counts, displacements = (*rest, None, None)[:2]
    return buffer, counts, displacements, datatype


def _is_datatype(value: Any) -> bool:
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, MPI.Datatype | str) or value is None


def _numbers(given: Any, size: int, step: int = 0) -> list[int]:
    """Returns one number per rank: of a sequence, or one for all; with `step`, times rank."""
    if np.ndim(given) == 0:
        return [operator.index(given)] * size if not step else [operator.index(given) * rank for rank in range(size)]
    return [operator.index(number) for number in given]


def _typed(buffer: Any, datatype: Any) -> tuple[Any, bool]:
    """Returns all elements of `buffer`; and True if it has one dimension and that dtype."""
    if buffer is None:
        return np.empty(0, np.uint8 if datatype is None else dtype_of(datatype)), False
    whole = memory_of(buffer)
    flat = whole.ravel(order="K")  # as it is in memory
    if datatype is None or dtype_of(datatype) == flat.dtype:
        return flat, whole.ndim == 1
    return flat.view(dtype_of(datatype)), False


def elements(spec: Any) -> Elements:
    """Reads a specification with at most one count and one displacement."""
    buffer, count, first, datatype = _split(spec)
    flat, plain = _typed(buffer, datatype)
    first = 0 if first is None else first
    count = flat.size - first if count is None else count
    part = flat[first : first + count]
    if part.size != count:
        raise ValueError(f"{count} elements from {first} on are more than the {flat.size} of the buffer")
    plain = plain and count == flat.size and not imitation(buffer)
    return Elements(part, buffer if plain else part)


class Parts:
    """The parts of several ranks in one buffer, by counts and displacements.

    ringcomm reads or writes `packed`: the memory itself if the parts are contiguous, else a copy.
    `pack` fills this copy, and `unpack` writes it back.
    """

    def __init__(self, spec: Any, size: int) -> None:
        buffer, counts, starts, datatype = _split(spec)
        self.flat, _ = _typed(buffer, datatype)
        self.counts = _numbers(self.flat.size // size if counts is None else counts, size)
        if starts is None:
            self.starts = [sum(self.counts[:rank]) for rank in range(size)]
        else:
            self.starts = _numbers(starts, size, step=1)
        ends = [start + count for start, count in zip(self.starts, self.counts, strict=True)]
        self.dense = self.starts[0] == 0 and ends[:-1] == self.starts[1:]
        self.packed = self.flat[: ends[-1]] if self.dense else np.empty(sum(self.counts), self.flat.dtype)

    @classmethod
    def in_bytes(cls, spec: Any, size: int) -> Parts:
        """Reads a specification of Alltoallw: displacements in bytes, and one datatype per rank.

        Without counts, each rank has one element.
        """
        buffer, counts, starts, datatypes = _split(spec)
        counts = [1] * size if counts is None else counts
        starts = [0] * size if starts is None else starts
        sizes = [count * datatype.Get_size() for count, datatype in zip(counts, datatypes, strict=True)]
        return cls([memory_of(buffer).reshape(-1).view(np.uint8), sizes, starts, MPI.BYTE], size)

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
