"""Argument checks that all calls share: integers, ranks, counts, and names from a list.

An error message names the argument and the refused value. Values are never rounded, truncated or
guessed.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any


def integer(what: str, value: Any) -> int:
    """Returns `value` as an int. Raises TypeError for other values, including True and False.

    `what`: the call and the argument for the message, as in "broadcast: root".
    """
    if type(value) is int:
        return value
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {value!r}") from None


def root(call: str, value: Any, size: int) -> int:
    """Returns a collective's root as an int. Raises ValueError unless it is a rank below `size`."""
    found = integer(f"{call}: root", value)
    if not 0 <= found < size:
        raise ValueError(
            f"{call}: root {found} is not a rank of this communicator of {size}; its ranks are 0..{size - 1}"
        )
    return found


def counts(what: str, values: Iterable[Any]) -> list[int]:
    """Returns the number of rows of each rank as ints. `what`: as in :func:`integer`."""
    try:
        listed = list(values)
    except TypeError:
        raise TypeError(f"{what} must be a list of integers, one for each rank, not {values!r}") from None
    return [integer(f"{what}[{i}]", value) for i, value in enumerate(listed)]


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns a suffix for a message about an unknown name: the closest known name, or ""."""
    found = difflib.get_close_matches(name, list(names), 1, 0.6)
    return f"; did you mean {found[0]!r}?" if found else ""
