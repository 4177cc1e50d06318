"""Computes the values that `ringcomm show --values` shows in each block, as numbers or as symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.algorithms.trace import trace_schedules
from ringcomm._src.base import ops
from ringcomm._src.core import _core
from ringcomm._src.core._core import Schedule

Labels = list[list[list[str]]]  # text by moment (0: start), rank and block; "" if the block is empty
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = "symbols"  # --values without numbers
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class Sum(NamedTuple):
    """A sum of the contributions of ranks to a block, in the order in which they were added."""

    ranks: tuple[int, ...]
    block: int

    def __add__(self, other: Any) -> Sum:
        return Sum(self.ranks + other.ranks, self.block)


def parse_values(text: str) -> list[list[float]] | str:
    """Parses "1,2;3,4" to a list of each rank's numbers. Raises ValueError."""
    if text == SYMBOLS:
        return text
    try:
        rows = [[_number(word) for word in row.split(",")] for row in text.strip(" ;").split(";")]
    except ValueError:
        raise ValueError(f"--values {text!r} must be numbers: 1,2,3;4,5,6 are three of each of two ranks") from None
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"--values: ranks need the same number of values, not {', '.join(str(len(r)) for r in rows)}")
    return rows


def _number(word: str) -> float:
    value = float(word)
    return int(value) if value.is_integer() else value


def labels_of(schedules: Sequence[Schedule], values: list[list[float]] | str) -> Labels:
    """Returns the text of each block at each moment. Raises ValueError if there can be none."""
    first = schedules[0]
    if first.collective != "allreduce":
        raise ValueError(f"--values shows all-reduces, not {first.collective}")
    arrays = [_symbols(first, rank) for rank in range(first.size)] if isinstance(values, str) else np.array(values)
    moments = trace_schedules(schedules, list(arrays), ops.Sum).blocks
    complete = _core.follow(schedules)
    return [
        [
            [
                _text(block, first.size) if complete[rank][min(moment, len(complete[rank]) - 1)][index] else ""
                for index, block in enumerate(blocks)
            ]
            for rank, blocks in enumerate(of_ranks)
        ]
        for moment, of_ranks in enumerate(moments)
    ]


def _symbols(schedule: Schedule, rank: int) -> Any:
    if schedule.size > len(LETTERS):
        raise ValueError(f"--values without numbers has letters for {len(LETTERS)} ranks, not {schedule.size}")
    array = np.empty(schedule.blocks, object)
    for block in range(schedule.blocks):
        array[block] = Sum((rank,), block)
    return array


def _text(block: Any, size: int) -> str:
    """Returns the text of a block: its numbers, or its sum with at most two terms a line."""
    if block.dtype != object:
        return " ".join(f"{value:g}" for value in block)
    (value,) = block
    index = str(value.block).translate(_SUBSCRIPTS)
    if len(value.ranks) == size > 4:
        return f"Σ{index}"
    terms = [f"{LETTERS[rank]}{index}" for rank in value.ranks]
    lines = ["+".join(terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return "\n+".join(lines)
