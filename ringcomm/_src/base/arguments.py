"""Arguments checked in one way: integers, ranks, counts, and names out of a list.

What is refused is named with the argument and the value. Nothing is rounded, cut or guessed.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any


def integer(what: str, value: Any) -> int:
    """`value` as an int. TypeError for anything that is not an integer; True and False are not.

    `what`: the call and the argument, as in "broadcast: root".
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
    """A rank of a communicator of `size`, which gives or gets the data."""
    found = integer(f"{call}: root", value)
    if not 0 <= found < size:
        raise ValueError(
            f"{call}: root {found} is not a rank of this communicator of {size}; its ranks are 0..{size - 1}"
        )
    return found


def counts(what: str, values: Iterable[Any]) -> list[int]:
    """Rows for each rank, as ints. `what`: as in :func:`integer`."""
    try:
        listed = list(values)
    except TypeError:
        raise TypeError(f"{what} must be a list of integers, one for each rank, not {values!r}") from None
    return [integer(f"{what}[{i}]", value) for i, value in enumerate(listed)]


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown `name`: the name that it resembles, if there is one."""
    found = difflib.get_close_matches(name, list(names), 1, 0.6)
    return f"; did you mean {found[0]!r}?" if found else ""
