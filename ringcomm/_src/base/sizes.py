"""Parses sizes, times and rates as users write them in options: "512K", "50us", "200mbit"."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([KMG]?)(?:I?B)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}  # per second, as tc(8) writes rates


def parse_size(text: str) -> int:
    """Returns the bytes of "4096", "512K", "1.5M", "16MB" or "2GiB"; units are powers of 1024.

    Raises ValueError for any other text, and for fractions of a byte.
    """
    found = _SIZE.fullmatch(text)
    size = float(found[1]) * _UNITS[found[2].upper()] if found else 0.5
    if size != int(size):
        raise ValueError(f"{text!r} is not a size in bytes; write 4096, 512K, 64M or 1G, for example")
    return int(size)


def parse_seconds(text: str) -> float:
    """Returns the seconds of "50us", "1.5ms" or "0.2s". Raises ValueError for any other text."""
    value = _number(text, SECONDS)
    if value is None:
        raise ValueError(f"{text!r} is not a time: write 50us, 1.5ms or 2s")
    return value


def parse_rate(text: str) -> float:
    """Returns the seconds per byte of "200mbit". Raises ValueError for any other text."""
    bits = _number(text, BITS)
    if not bits:
        raise ValueError(f"{text!r} is not a rate: write for example 200mbit or 10gbit")
    return 8 / bits


def _number(text: str, units: dict[str, float]) -> float | None:
    """Parses a number with a unit: "50us" with SECONDS -> 5e-5. Returns None for any other text."""
    word = text.strip().lower()
    for unit, factor in units.items():
        if word.endswith(unit):
            try:
                value = float(word.removesuffix(unit)) * factor
            except ValueError:
                continue
            return value if value >= 0 else None
    return None
