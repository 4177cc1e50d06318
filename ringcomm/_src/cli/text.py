"""Formats the output of the commands: errors, table rows, runs of numbers."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence


def refuse(command: str, why: object) -> int:
    """Prints one line with the reason why a command cannot run. Returns the exit status, 2."""
    print(f"ringcomm {command}: {why}", file=sys.stderr)
    return 2


def aligned(cells: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
    """Returns a table row of right-aligned cells; those with an index in `left` are left-aligned."""
    pairs = enumerate(zip(cells, widths, strict=True))
    return "  ".join(f"{cell:{'<' if index in left else '>'}{width}}" for index, (cell, width) in pairs).rstrip()


def runs(numbers: Iterable[int], cut: int = sys.maxsize) -> list[list[int]]:
    """Splits numbers into consecutive runs: 0, 1, 4 -> [0, 1], [4]. A new run begins at `cut`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1 and number != cut:
            found[-1].append(number)
        else:
            found.append([number])
    return found
