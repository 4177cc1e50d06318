"""NumPy's arrays in memory that the ranks of a host share, as NumPy itself makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringcomm._src.core import _core


@contextmanager
def shared_arrays(node: _core.Node | None) -> Iterator[None]:
    """Arrays of at least 64 KB that NumPy makes inside lie in this rank's arena. Without an arena, or where the system
    gives no more memory, they are ordinary ones."""
    if node is None:
        yield
        return
    before = _core.set_numpy_memory(_core.numpy_memory(node))
    try:
        yield
    finally:
        _core.set_numpy_memory(before)
