"""Shows the rows of `ringcomm simulate`: as a table for people, and as JSON."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from ringcomm._src.cli import measured
from ringcomm._src.cli.sizes import human_size, human_time
from ringcomm._src.cli.text import aligned
from ringcomm._src.core import _core

COLUMNS = ("", "algorithm", "segment", "in flight", "time", "busbw", "time/best", "most time")
WIDTHS = (1, 28, 10, 9, 10, 12, 11, 12)
SHOWN = {  # network parameters -> their names in the line about assumed values
    "alpha": "latency between hosts",
    "beta": "rate between hosts",
    "host_alpha": "latency inside a host",
    "host_beta": "rate inside a host",
    "gap": "time of a further message",
    "gamma": "reducing",
    "copy": "copying",
}


@dataclasses.dataclass
class Row:
    """One way to run the collective. Units: seconds, bytes, bytes per second."""

    ranks: int
    size: int
    algorithm: str
    segment: int
    window: int
    time: float
    busbw: float
    chosen: bool  # True for the schedule that would run
    limit: str = ""  # with a topology: the links that take most of the time, or LATENCY


def gains(rows: Sequence[Row], plain: Sequence[Row], wire: int) -> list[str]:
    """Returns a line for each size that compares the chosen schedules with and without encoding."""
    text = _core.wire_text(wire)
    ratio = _core.wire_ratio(wire, _core.DTYPES.index("float32"))
    lines = [
        f"# float32 as {text}: 1/{1 / ratio:.3g} of the bytes between hosts"
        + (", not encoded inside a host" if ratio < 1 else "")
    ]
    before = {(row.ranks, row.size): row for row in plain if row.chosen}
    for row in rows:
        if row.chosen:
            unencoded = before[row.ranks, row.size]
            times = unencoded.time / row.time if row.time > 0 else 1.0
            lines.append(
                f"# {row.ranks} ranks, {human_size(row.size)}: {human_time(row.time)} by {row.algorithm}, unencoded "
                f"{human_time(unencoded.time)} by {unencoded.algorithm}: {times:.2f} times as fast"
                + ("" if times > 1 else ", so encoding does not help")
            )
    return lines


def table(
    options: argparse.Namespace, rows: Sequence[Row], network: _core.Network, guessed: Sequence[str]
) -> list[str]:
    collective, per_host = options.collective, options.ranks_per_host
    shared = f", {per_host} on each host" if per_host > 1 else ""
    lines = [
        f"# between hosts: latency {human_time(network.alpha)}, {_rate(network.beta)} each way; "
        f"inside a host: latency {human_time(network.host_alpha)}, {_rate(network.host_beta)}; "
        f"further message {human_time(network.gap)}; reducing {_rate(network.gamma)}, copying {_rate(network.copy)}"
    ]
    if guesses := ", ".join(meaning for name, meaning in SHOWN.items() if name in guessed):
        lines.append(f"# assumed, neither measured nor given: {guesses}")
    if options.topology:
        lines.append(f"# {options.topology.text}, placement {options.placement}")
    heads = dict.fromkeys((row.ranks, row.size) for row in rows)
    for ranks, size in heads:
        here = [row for row in rows if (row.ranks, row.size) == (ranks, size)]
        what = "" if collective == "barrier" else f" of {human_size(size)}"
        lines += [
            "",
            f"# {collective}{what}, {ranks} ranks{shared}",
            _line(COLUMNS if options.topology else COLUMNS[:-1]),
        ]
        fastest = min(row.time for row in here)
        for row in here:
            cells = (
                "*" if row.chosen else "",
                row.algorithm,
                human_size(row.segment) if row.segment else "all",
                str(row.window),
                human_time(row.time),
                f"{row.busbw / 1e9:.3g} GB/s",
                f"{row.time / fastest:.2f}" if fastest > 0 else "",
                *([row.limit] if options.topology else []),
            )
            lines.append(_line(cells))
        if missing := _left_out(options, here):
            lines.append(f"# not simulated, because it has too many messages: {', '.join(missing)}")
    return lines


def _left_out(options: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    """Returns the algorithms that a topology leaves out."""
    if not options.topology or options.algorithms != "all" or options.wire:
        return []
    shown = {row.algorithm for row in rows}
    return [a.name for a in _core.algorithms() if a.collective == options.collective and a.name not in shown]


def _line(cells: Sequence[str]) -> str:
    return aligned(cells, WIDTHS[: len(cells)], left=(0, 1))


def _rate(seconds_per_byte: float) -> str:
    return f"{1e-9 / seconds_per_byte:.3g} GB/s" if seconds_per_byte > 0 else "unlimited"


def write_json(
    options: argparse.Namespace, rows: Sequence[Row], network: _core.Network, guessed: Sequence[str]
) -> None:
    document: dict[str, Any] = {
        "collective": options.collective,
        "ranks_per_host": options.ranks_per_host,
        "topology": options.topology.text if options.topology else None,
        "placement": options.placement,
        "network": network._asdict(),
        "guessed": guessed,
        "units": {"time": "s", "busbw": "B/s", "size": "B", "segment": "B, 0: one segment", "network": "s, s/B"},
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    measured.write_json(options.json, document)
