"""Parses sizes in bytes as users write them in options: "512K", "2GiB"."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([KMG]?)(?:I?B)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Returns the bytes of "4096", "512K", "1.5M", "16MB" or "2GiB"; units are powers of 1024.

    Raises ValueError for any other text, and for fractions of a byte.
    """
    found = _SIZE.fullmatch(text)
    size = float(found[1]) * _UNITS[found[2].upper()] if found else 0.5
    if size != int(size):
        raise ValueError(f"{text!r} is not a size in bytes; write 4096, 512K, 64M or 1G, for example")
    return int(size)
