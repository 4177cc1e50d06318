"""NumPy's arrays in memory that the ranks of a host share, as NumPy itself makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ringcomm._src.core import _core


def _functions() -> Any:
    """NumPy's table of its C functions, or None where it knows no memory handlers (before 1.22)."""
    if tuple(int(part) for part in np.__version__.split(".")[:2]) < (1, 22):
        return None
    return (getattr(np, "_core", None) or np.core)._multiarray_umath._ARRAY_API


@contextmanager
def shared_arrays(node: _core.Node | None) -> Iterator[None]:
    """Arrays of at least 64 KB that NumPy makes inside lie in this rank's arena. Without an arena, or where the system
    gives no more memory, they are ordinary ones."""
    functions = None if node is None else _functions()
    if node is None or functions is None:
        yield
        return
    before = _core.set_numpy_memory(functions, _core.numpy_memory(node))
    try:
        yield
    finally:
        _core.set_numpy_memory(functions, before)
