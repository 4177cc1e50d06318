"""Arrays by their rows: along the first dimension, cut into parts, one for each rank."""

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
    """Core elements of one row."""
    return math.prod(buffer.shape[1:]) * buffer.width


def with_rows(buffer: Buffer) -> Buffer:
    """A 0-dimensional buffer as one row."""
    return buffer if buffer.shape else buffer._replace(shape=(1,))


def part(rows: int, size: int, rank: int) -> int:
    """Rows of `rank` when `rows` are cut into `size` parts, the first ones longer by one."""
    return rows // size + (rank < rows % size)


def parts(rows: int, size: int) -> list[int]:
    return [part(rows, size, rank) for rank in range(size)]


def rows_of_parts(collective: str, x: Buffer, rows: Sequence[int] | None, size: int) -> list[int]:
    """As given, checked, or the first dimension in parts."""
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
    """Every rank's first dimension: as given, checked by this one's; None: the same everywhere."""
    listed = [mine] * size if rows is None else arguments.counts(what, rows)
    if len(listed) != size or listed[rank] != mine:
        raise ValueError(
            f"{what} must give the first dimension on each of the {size} ranks, {mine} at index {rank}; got {listed}"
        )
    return listed


def splits_of(x: Buffer, splits: Any, size: int, some: bool = False) -> list[int]:
    """Rows to each rank: as given, checked, or the first dimension in even parts. `some`: rows may be left over."""
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
    """The signature with counts, and perhaps a root, that must agree too. What is most likely to differ comes first in
    its text, for that is cut."""
    text = f"rows {list(rows)} of {sign.text}"
    hashed = buffers.signature((sign.hash, *rows, *([] if root is None else [root]))).hash
    return buffers.Signature(hashed, text if root is None else f"root {root}, {text}")
