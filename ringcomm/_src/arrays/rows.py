"""Counts of rows: arrays divided along the first dimension into parts, one for each rank.

The checks of users' counts and splits are here too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays import buffers
from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.arrays.device.values import host_copy
from ringcomm._src.base import arguments


def require_rows(collective: str, buffer: Buffer) -> None:
    if not buffer.shape:
        raise ValueError(f"{collective} works along the first dimension; the array has none")


def row_of(buffer: Buffer) -> int:
    """Returns the number of core elements of one row."""
    return math.prod(buffer.shape[1:]) * buffer.width


def with_rows(buffer: Buffer) -> Buffer:
    """Returns the buffer; a 0-dimensional one becomes one row."""
    return buffer if buffer.shape else buffer._replace(shape=(1,))


def part(rows: int, size: int, rank: int) -> int:
    """Returns the rows of `rank` when `rows` are divided into `size` parts; the first `rows % size` have one more."""
    return rows // size + (rank < rows % size)


def parts(rows: int, size: int) -> list[int]:
    return [part(rows, size, rank) for rank in range(size)]


def rows_of_parts(collective: str, x: Buffer, rows: Sequence[int] | None, size: int) -> list[int]:
    """Returns the rows of each rank's part: `rows`, checked, or if it is None the even parts of the first dimension."""
    require_rows(collective, x)
    if rows is None:
        return parts(x.shape[0], size)
    listed = arguments.counts(f"{collective}: counts", rows)
    if len(listed) != size or min(listed) < 0 or sum(listed) != x.shape[0]:
        raise ValueError(
            f"{collective}: counts must be {size} row counts that add up to the first dimension, {x.shape[0]}; "
            f"got {listed}"
        )
    return listed


def rows_of_all(what: str, rows: Sequence[int] | None, mine: int, rank: int, size: int) -> list[int]:
    """Returns every rank's first dimension: `rows`, checked against this rank's `mine`; None: `mine` on all ranks."""
    listed = [mine] * size if rows is None else arguments.counts(what, rows)
    if len(listed) != size or listed[rank] != mine:
        raise ValueError(
            f"{what} must give the first dimension on each of the {size} ranks, {mine} at index {rank}; got {listed}"
        )
    return listed


def splits_of(x: Buffer, splits: Any, size: int, some: bool = False) -> list[int]:
    """Returns the rows sent to each rank: `splits`, checked, or if None equal parts of the first dimension.

    `some`: the splits may add up to less than the first dimension.
    """
    require_rows("alltoall", x)
    if splits is None:
        if x.shape[0] % size:
            raise ValueError(
                f"alltoall without splits needs a first dimension that {size} ranks divide; it is {x.shape[0]}"
            )
        return [x.shape[0] // size] * size
    given = np.asarray(host_copy(splits))
    listed = [int(n) for n in given] if given.ndim == 1 and given.dtype.kind in "iu" else []
    total = sum(listed)
    fits = total <= x.shape[0] if some else total == x.shape[0]
    if len(listed) != size or min(listed) < 0 or not fits:
        raise ValueError(
            f"splits must be {size} row counts that add up to {'at most ' if some else ''}the first dimension, "
            f"{x.shape[0]}; got {given.tolist()}"
        )
    return listed


def signed(sign: buffers.Signature, rows: Sequence[int], root: int | None = None) -> buffers.Signature:
    """Returns the signature extended by counts, and by a root if given, which must agree too.

    The items most likely to differ come first in its text, because messages truncate it.
    """
    text = f"rows {list(rows)} of {sign.text}"
    hashed = buffers.signature((sign.hash, *rows, *([] if root is None else [root]))).hash
    return buffers.Signature(hashed, text if root is None else f"root {root}, {text}")
