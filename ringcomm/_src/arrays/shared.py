"""Allocates arrays in memory that the ranks of a host share, so that collectives need no copy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ringcomm._src.arrays.numpy_kind import CoreMemory
from ringcomm._src.core import _core

ALIGNED = 64  # alignment, in bytes, of arrays in ordinary memory: a cache line, as in shared memory


def empty(node: _core.Node | None, shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Returns an uninitialised C-contiguous array in this rank's arena.

    The array is in ordinary memory if ``node`` is None or no shared memory is left. Not collective.
    The memory lives as long as the array and its views.
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError("arrays of Python objects cannot be shared")
    shape = np.broadcast_to(0, shape).shape  # raises as NumPy does for what is no shape
    nbytes = math.prod(shape) * dtype.itemsize
    return empty_bytes(node, nbytes).view(dtype).reshape(shape) if nbytes else np.empty(shape, dtype)


def empty_bytes(node: _core.Node | None, nbytes: int) -> np.ndarray[Any, Any]:
    """Returns `nbytes` (at least 1) uninitialised bytes, in shared memory if possible."""
    if node is not None:
        try:
            memory = _core.SharedMemory(node, nbytes)
            return np.asarray(CoreMemory(memory.address, nbytes, memory))
        except (ValueError, MemoryError):  # no shared memory left: collectives copy this array
            pass
    padded = np.empty(nbytes + ALIGNED, np.uint8)
    start = -padded.ctypes.data % ALIGNED
    return padded[start : start + nbytes]
