"""What commands print."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence


def refuse(command: str, why: object) -> int:
    """One line that says why a command does nothing; its exit status."""
    print(f"ringcomm {command}: {why}", file=sys.stderr)
    return 2


def aligned(cells: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
    """A row of a table: cells of these widths, at the right of it but for those whose indices are in `left`."""
    pairs = enumerate(zip(cells, widths, strict=True))
    return "  ".join(f"{cell:{'<' if at in left else '>'}{width}}" for at, (cell, width) in pairs).rstrip()


def runs(numbers: Iterable[int], cut: int = sys.maxsize) -> list[list[int]]:
    """Of numbers that follow each other: 0, 1, 4 -> [0, 1], [4]. At `cut` a new one begins."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1 and number != cut:
            found[-1].append(number)
        else:
            found.append([number])
    return found
