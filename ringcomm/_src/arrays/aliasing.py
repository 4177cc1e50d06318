"""Checks that the arrays of one call share no memory, except exactly as an in-place call does.

Ranks read an array while they write its result. A result that overlaps other parts of the array
would change values before they are read. Every request with an array and a result passes
`shared_span` before any communication; calls in the call cache repeat the check
(border/call_cache.hpp).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.core import _core

NEVER_IN_PLACE = -(1 << 62)  # the offset of calls that cannot be in place; no two arrays have it


class Span(NamedTuple):
    """Sizes in bytes of the memory that a call reads and writes.

    In an in-place call, the memory read begins `offset` bytes after the memory written.
    """

    offset: int = 0
    read: int = 0
    written: int = 0


def bytes_of(buffer: Buffer) -> int:
    return buffer.count * _core.ITEM_SIZES[buffer.dtype]


def shared_span(call: str, source: Buffer, target: Buffer, in_place_offset: int | None = 0) -> Span:
    """Returns the span of a call from `source` to `target`.

    Raises ValueError if both overlap, except exactly as an in-place call does.

    Parameters
    ----------
    in_place_offset : int | None
        Offset of `source` in `target` for an in-place call, in elements of the core; negative if
        `target` is a part of `source`; None if the call cannot be in place.
    """
    offset = NEVER_IN_PLACE if in_place_offset is None else in_place_offset * _core.ITEM_SIZES[source.dtype]
    read, written = bytes_of(source), bytes_of(target)
    distance = source.address - target.address
    if distance != offset and -read < distance < written and read and written:
        raise ValueError(
            f"{call}: x and out overlap in memory (x has {read} bytes, out has {written}, and x begins {abs(distance)} "
            f"bytes {'before' if distance < 0 else 'after'} out), so ranks would read overwritten values. "
            f"Give an out that shares no memory with x, or pass x.copy(){_in_place_advice(call, in_place_offset)}"
        )
    return Span(offset, read, written)


def _in_place_advice(call: str, in_place_offset: int | None) -> str:
    if in_place_offset is None:
        return ""
    if call in ("allgather", "gather"):
        return "; in place, x must be exactly this rank's part of out"
    if call in ("reducescatter", "scatter"):
        return "; in place, out must be exactly this rank's part of x"
    return "; in place, out must be x"


def require_disjoint(call: str, what: str, written: Sequence[tuple[int, int]]) -> None:
    """Raises ValueError if two of the arrays that one call writes share memory.

    Parameters
    ----------
    what : str
        Name of the argument that holds the arrays.
    written : Sequence[tuple[int, int]]
        Address and size in bytes of each array.
    """
    order = sorted((i for i, (_, nbytes) in enumerate(written) if nbytes), key=written.__getitem__)
    for i, j in itertools.pairwise(order):
        if sum(written[i]) > written[j][0]:
            first, second = sorted((i, j))
            raise ValueError(
                f"{call}: {what}[{first}] and {what}[{second}] overlap in memory, and the call would write both: give "
                "arrays that share no memory"
            )
