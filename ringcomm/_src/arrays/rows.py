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


def elements_per_row(buffer: Buffer) -> int:
    """Returns the number of core elements of one row."""
    return math.prod(buffer.shape[1:]) * buffer.width


def at_least_1d(buffer: Buffer) -> Buffer:
    """Returns the buffer; a 0-dimensional one becomes one row."""
    return buffer if buffer.shape else buffer._replace(shape=(1,))


def even_part(rows: int, size: int, rank: int) -> int:
    """Returns how many of `rows` rows `rank` gets; the first `rows % size` ranks get one more."""
    return rows // size + (rank < rows % size)


def even_parts(rows: int, size: int) -> list[int]:
    return [even_part(rows, size, rank) for rank in range(size)]


def rows_of_parts(collective: str, x: Buffer, rows: Sequence[int] | None, size: int) -> list[int]:
    """Returns the rows of each rank's part: `rows`, checked; if None, even parts."""
    require_rows(collective, x)
    if rows is None:
        return even_parts(x.shape[0], size)
    row_counts = arguments.counts(f"{collective}: counts", rows)
    if len(row_counts) != size or min(row_counts) < 0 or sum(row_counts) != x.shape[0]:
        raise ValueError(
            f"{collective}: counts must be {size} row counts that add up to the first dimension, {x.shape[0]}; "
            f"got {row_counts}"
        )
    return row_counts


def rows_of_all(what: str, rows: Sequence[int] | None, own_rows: int, rank: int, size: int) -> list[int]:
    """Returns every rank's first dimension: `rows`, checked; if None, `own_rows` on all ranks."""
    row_counts = [own_rows] * size if rows is None else arguments.counts(what, rows)
    if len(row_counts) != size or row_counts[rank] != own_rows:
        raise ValueError(
            f"{what} must have {size} entries, each rank's number of rows, "
            f"and entry {rank} must be {own_rows}, this rank's number of rows; got {row_counts}"
        )
    return row_counts


def splits_of(x: Buffer, splits: Any, size: int, allow_partial: bool = False) -> list[int]:
    """Returns the rows sent to each rank: `splits`, checked; if None, equal parts.

    `allow_partial`: the splits may add up to less than the first dimension.
    """
    require_rows("alltoall", x)
    if splits is None:
        if x.shape[0] % size:
            raise ValueError(
                f"alltoall without splits needs a first dimension that is a multiple of the {size} ranks; "
                f"it is {x.shape[0]}"
            )
        return [x.shape[0] // size] * size
    values = np.asarray(host_copy(splits))
    row_counts = [int(n) for n in values] if values.ndim == 1 and values.dtype.kind in "iu" else []
    total = sum(row_counts)
    fits = total <= x.shape[0] if allow_partial else total == x.shape[0]
    if len(row_counts) != size or min(row_counts) < 0 or not fits:
        raise ValueError(
            f"splits must be {size} row counts that add up to {'at most ' if allow_partial else ''}the first "
            f"dimension, {x.shape[0]}; got {values.tolist()}"
        )
    return row_counts


def with_counts(signature: buffers.Signature, rows: Sequence[int], root: int | None = None) -> buffers.Signature:
    """Returns the signature extended by counts, and by a root if given.

    Ranks then compare these too. The text begins with the items that are most likely to differ,
    because messages truncate it.
    """
    text = f"rows {list(rows)} of {signature.text}"
    combined_hash = buffers.signature((signature.hash, *rows, *([] if root is None else [root]))).hash
    return buffers.Signature(combined_hash, text if root is None else f"root {root}, {text}")
