"""Which memory the arrays of one call may share: none, or exactly what an in-place call shares.

Ranks read an array while they write its result, so a result that covers other parts of the array changes values that
are still to be read. Every call with an array and a result passes through `shared_span` when its request is made,
before any communication; calls that the core remembers compare the same numbers again (border/call_cache.hpp).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.core import _core

NEVER = -(1 << 62)  # in place is not possible: an offset that no two arrays have


class Span(NamedTuple):
    """The memory that a call reads and writes, in bytes. In place, the read begins `offset` bytes after the write."""

    offset: int = 0
    read: int = 0
    written: int = 0


def bytes_of(buffer: Buffer) -> int:
    return buffer.count * _core.ITEM_SIZES[buffer.dtype]


def shared_span(call: str, source: Buffer, target: Buffer, own: int | None = 0) -> Span:
    """The span of a call from `source` to `target`. ValueError if they overlap, unless it is in place.

    Args:
        own: where an in-place call's `source` begins in `target`, in elements of the core; negative if `target` lies in
            `source`; None: the call cannot be made in place.
    """
    offset = NEVER if own is None else own * _core.ITEM_SIZES[source.dtype]
    read, written = bytes_of(source), bytes_of(target)
    distance = source.address - target.address
    if distance != offset and -read < distance < written and read and written:
        raise ValueError(
            f"{call}: x and out overlap in memory ({read} and {written} bytes, of which x begins {abs(distance)} bytes "
            f"{'before' if distance < 0 else 'after'} out): ranks would read what has been overwritten. "
            f"Give an out that shares no memory with x, or pass x.copy(){_in_place(call, own)}"
        )
    return Span(offset, read, written)


def _in_place(call: str, own: int | None) -> str:
    if own is None:
        return ""
    if call in ("allgather", "gather"):
        return "; in place, x is exactly this rank's part of out"
    if call in ("reducescatter", "scatter"):
        return "; in place, out is exactly this rank's part of x"
    return "; in place, out is x"


def require_disjoint(call: str, what: str, written: Sequence[tuple[int, int]]) -> None:
    """ValueError if two of the arrays that one call writes share memory.

    Args:
        what: the argument that holds them.
        written: address and bytes of each.
    """
    order = sorted((i for i, (_, nbytes) in enumerate(written) if nbytes), key=written.__getitem__)
    for i, j in itertools.pairwise(order):
        if sum(written[i]) > written[j][0]:
            first, second = sorted((i, j))
            raise ValueError(
                f"{call}: {what}[{first}] and {what}[{second}] overlap in memory, and both would be written: give "
                "arrays that share no memory"
            )
