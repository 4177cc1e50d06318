"""Parses and formats sizes, times and link speeds for the commands: 64M, 50us, 200mbit."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import TypeVar

from ringcomm._src.base import sizes

Value = TypeVar("Value")


def argument(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Returns `parse` for argparse, which prints the text of an ArgumentTypeError only."""

    @functools.wraps(parse)
    def parsed(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


parse_size = argument(sizes.parse_size)
parse_seconds = argument(sizes.parse_seconds)
parse_rate = argument(sizes.parse_rate)


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


def parse_link(text: str) -> tuple[float, float]:
    """Parses "200mbit,50us" to (seconds per byte, latency). Raises argparse.ArgumentTypeError."""
    rate, comma, latency = text.partition(",")
    try:
        if comma:
            return sizes.parse_rate(rate), parse_seconds(latency)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a link: write a rate and a latency, as in 200mbit,50us")


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
