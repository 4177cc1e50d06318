"""Pieces of buckets, for a plan by priority.

Of the pieces that are ready on all ranks, this plan first reduces what the next forward pass uses
first. A piece in flight delays more important ones, so big buckets are cut.

Sources: Peng et al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration"
(ByteScheduler), SOSP 2019; Jayarajan et al., "Priority-based Parameter Propagation for Distributed
DNN Training" (P3), MLSys 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PIECES = 64  # number of pieces of all gradients
SMALLEST, LARGEST = 256 << 10, 4 << 20  # bytes of a piece
ALIGNED = 64  # pieces begin at multiples of this number of elements
UNUSED = -1


class Piece(NamedTuple):
    bucket: int
    offset: int  # bytes from the bucket's begin
    elements: int


def piece_bytes(total: int) -> int:
    """Returns the size of pieces of gradients with this number of bytes in total."""
    return min(max(total // PIECES, SMALLEST), LARGEST)


def cut(bucket: int, elements: int, itemsize: int, piece: int) -> list[Piece]:
    """Returns the pieces of a bucket. `piece`: bytes of each."""
    step = max(ALIGNED, piece // itemsize // ALIGNED * ALIGNED)
    if elements < 2 * step:
        return [Piece(bucket, 0, elements)]
    return [Piece(bucket, first * itemsize, min(step, elements - first)) for first in range(0, elements, step)]


def by_first_use(buckets: Sequence[Sequence[int]], used: Sequence[int]) -> list[int]:
    """Returns the buckets in the order in which the forward pass first uses one of their items.

    ``used``: the place of each item in the order of use; UNUSED: last.
    """
    last = len(used)
    first = [min(last if used[item] == UNUSED else used[item] for item in items) for items in buckets]
    return sorted(range(len(buckets)), key=lambda bucket: (first[bucket], bucket))
