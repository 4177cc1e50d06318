"""Parses and formats sizes, times and link speeds for the commands: 64M, 50us, 200mbit."""

from __future__ import annotations

import argparse

from ringcomm._src.base import sizes

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}  # per second, as tc(8) writes rates


def parse_size(text: str) -> int:
    """Parses a size in bytes, like base.sizes, but raises argparse.ArgumentTypeError."""
    try:
        return sizes.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_sizes(text: str) -> list[int]:
    """Parses a list of sizes. "4-64M" doubles from 4 to 64M; "4-64M/4" multiplies by 4."""
    listed: list[int] = []
    for part in text.split(","):
        ends, _, step = part.partition("/")
        low, dash, high = ends.partition("-")
        if not dash:
            listed.append(parse_size(low))
            continue
        size, last = max(1, parse_size(low)), parse_size(high)
        factor = int(step) if step.isdigit() and int(step) > 1 else 2
        while size <= last:
            listed.append(size)
            size *= factor
    return listed


def parse_names(text: str) -> list[str]:
    """Parses names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


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


def parse_seconds(text: str) -> float:
    """Parses "50us", "1.5ms" or "0.2s" to seconds. Raises argparse.ArgumentTypeError."""
    value = _number(text, SECONDS)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write 50us, 1.5ms or 2s")
    return value


def parse_rate(text: str) -> float:
    """Parses "200mbit" to seconds per byte. Raises argparse.ArgumentTypeError."""
    bits = _number(text, BITS)
    if not bits:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write for example 200mbit or 10gbit")
    return 8 / bits


def parse_link(text: str) -> tuple[float, float]:
    """Parses "200mbit,50us" to (seconds per byte, latency). Raises argparse.ArgumentTypeError."""
    rate, comma, latency = text.partition(",")
    if not comma or not _number(rate, BITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a link: write a rate and a latency, as in 200mbit,50us")
    return parse_rate(rate), parse_seconds(latency)


def human_size(nbytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} GB"


def human_time(seconds: float) -> str:
    for factor, unit in ((1e12, "ps"), (1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if 0 < seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
