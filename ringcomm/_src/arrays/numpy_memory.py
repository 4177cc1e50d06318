"""Lets NumPy allocate its arrays in memory that the ranks of a host share (NEP 49).

:meth:`ringcomm.Communicator.shared_arrays` uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringcomm._src.core import _core


@contextmanager
def shared_arrays(node: _core.Node | None) -> Iterator[None]:
    """Makes NumPy allocate arrays of at least 64 KB, inside the block, in this rank's arena.

    Without an arena, or if no shared memory is left, the arrays are in ordinary memory.
    """
    if node is None:
        yield
        return
    before = _core.set_numpy_memory(_core.numpy_memory(node))
    try:
        yield
    finally:
        _core.set_numpy_memory(before)
