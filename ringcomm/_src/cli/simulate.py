"""Implements `ringcomm simulate`: predicts the time of every schedule of a collective on a cluster.

The cluster need not exist. The code that chooses schedules at run time makes the predictions.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from ringcomm._src.base.installed import missing_message
from ringcomm._src.base.ops import wire_code
from ringcomm._src.cli import measured
from ringcomm._src.cli.bench_cases import bus_factor
from ringcomm._src.cli.sizes import human_size, human_time, parse_link, parse_names, parse_seconds, parse_sizes
from ringcomm._src.cli.text import aligned, refuse
from ringcomm._src.cli.wires import parse_wire
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core

DEFAULT_RANKS, DEFAULT_SIZES = "8,64,1024,16384", "4K,1M,64M"
COLUMNS = ("", "algorithm", "segment", "in flight", "time", "busbw", "time/best")
SHOWN = {  # network parameters -> their names in the line about assumed values
    "alpha": "latency between hosts",
    "beta": "rate between hosts",
    "host_alpha": "latency inside a host",
    "host_beta": "rate inside a host",
    "gap": "time of a further message",
    "gamma": "reducing",
    "copy": "copying",
}
WIDTHS = (1, 28, 10, 9, 10, 12, 11)


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("collective", choices=_core.COLLECTIVES, help="collective to predict")
    add("--ranks", type=_counts, default=_counts(DEFAULT_RANKS), help=f"numbers of ranks (default {DEFAULT_RANKS})")
    add(
        "--sizes",
        type=parse_sizes,
        default=parse_sizes(DEFAULT_SIZES),
        metavar="LIST",
        help=f"sizes in bytes (default {DEFAULT_SIZES}); 4K-64M: 4K, 8K, 16K and so on to 64M; "
        "for allgather, reducescatter and alltoall: the size of all ranks' parts together",
    )
    add("--ranks-per-host", type=int, default=1, metavar="N", help="ranks that share a host's link (default 1)")
    add("--link", type=parse_link, metavar="RATE,LATENCY", help="network link of each host, for example 200mbit,50us")
    add("--host-link", type=parse_link, metavar="RATE,LATENCY", help="messages inside a host, for example 40gbit,1us")
    add("--network", metavar="FILE.json", help="file of 'ringcomm tune --json'; other options override its values")
    add("--gap", type=parse_seconds, metavar="TIME", help="time of each further message of a round, for example 1us")
    add("--gamma", type=float, metavar="SECONDS", help="seconds per byte reduced")
    add("--copy", type=float, metavar="SECONDS", help="seconds per byte copied in a host's memory")
    add("--algorithms", default="all", help='"all" (the default), or names separated by commas')
    add("--wire", type=_wire, metavar="NAME", help="wire format of float32 in allreduce: bfloat16, int8, topk:0.001")
    add("--json", metavar="FILE", help="also write all rows and the network to FILE")
    add("--plot", metavar="FILE.png", help="also plot time over size (needs matplotlib)")


def run(options: argparse.Namespace) -> int:
    if options.plot and (trouble := missing_message("matplotlib", "--plot")):
        return refuse("simulate", trouble)
    try:
        network, guessed = network_of(options)
        if options.wire and options.collective != "allreduce":
            raise ValueError("--wire works only with allreduce")
        arguments = (
            options.collective,
            options.ranks,
            options.sizes,
            options.ranks_per_host,
            network,
            options.algorithms,
        )
        rows = simulate(*arguments, wire=options.wire or 0)
        plain = simulate(*arguments[:5]) if options.wire else []
    except (ValueError, OSError, KeyError) as error:
        return refuse("simulate", error)
    print("\n".join(table(options.collective, rows, options.ranks_per_host, network, guessed)), flush=True)
    if options.wire:
        print("\n".join(["", *gains(rows, plain, options.wire)]), flush=True)
    if options.json:
        write_json(options, rows, network, guessed)
    if options.plot:
        plot(options, rows)
    return 0


def network_of(options: argparse.Namespace) -> tuple[_core.Network, list[str]]:
    """Returns the network, and the names of the parameters that are guessed.

    Values of the command line take precedence over those of the file. The guesses are those of
    ringcomm._src.config.config.NETWORK.
    """
    values: dict[str, float] = {}
    if options.network:
        with open(options.network, encoding="utf-8") as file:
            known = json.load(file)["network"]
        values = {name: float(known[name]) for name in NETWORK if known[name] > 0}
    if options.link:
        values["beta"], values["alpha"] = options.link
        values["hidden"] = 0.0
    if options.host_link:
        values["host_beta"], values["host_alpha"] = options.host_link
    values |= {name: value for name in ("gap", "gamma", "copy") if (value := getattr(options, name)) is not None}
    return _core.Network(**(NETWORK | values)), [name for name in NETWORK if name not in values]


def simulate(
    collective: str,
    ranks: Sequence[int],
    sizes: Sequence[int],
    ranks_per_host: int,
    network: _core.Network,
    algorithms: str = "all",
    wire: int = 0,
) -> list[Row]:
    """Prices every algorithm that supports the wire format, at every size and number of ranks.

    Each algorithm uses its cheapest segmentation. Hosts are filled one after another.

    Raises
    ------
    ValueError
        A number is below one, or an algorithm does not exist.
    """
    if ranks_per_host < 1 or min(ranks) < 1:
        raise ValueError("--ranks and --ranks-per-host must be at least 1")
    requested = None if algorithms == "all" else parse_names(algorithms)
    rows: list[Row] = []
    for count in ranks:
        menu = _core.Menu(collective, count, [rank // ranks_per_host for rank in range(count)], network)
        for size in [0] if collective == "barrier" else sizes:
            new = [
                _row(collective, count, size, option) for option in _options(menu, size, requested, collective, wire)
            ]
            rows += sorted(new, key=lambda row: row.time)
    return rows


def _options(
    menu: _core.Menu, size: int, requested: list[str] | None, collective: str, wire: int
) -> list[_core.Option]:
    every = menu.options("", size, memory=True, wire=wire)
    if requested is None:
        by_name = [a.name for a in _core.algorithms() if a.collective == collective and not a.automatic]
        others = (option for name in by_name for option in menu.options(name, size, memory=True, wire=wire))
        return every + [option._replace(chosen=False) for option in others]
    chosen = {option.name for option in every if option.chosen}
    found: list[_core.Option] = []
    for name in requested:
        variants = menu.options(name, size, memory=True, wire=wire) or [
            option for option in every if option.name == name
        ]
        if not variants:
            known = ", ".join(option.name for option in every)
            raise ValueError(f"algorithm {name} cannot run {collective} here; these can: {known}")
        found += [option for option in variants if option.name == name] or variants  # for an alias: all its algorithms
    return [option._replace(chosen=option.name in chosen) for option in found]


def _row(collective: str, ranks: int, size: int, option: _core.Option) -> Row:
    seconds = option.price.seconds
    busbw = size / seconds * bus_factor(collective, ranks) if seconds > 0 else 0.0
    return Row(ranks, size, option.name, min(option.segment, size), option.window, seconds, busbw, option.chosen)


def _counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers: write for example 8,64,1024") from None


def _wire(text: str) -> int:
    return wire_code(parse_wire(text))


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


# ---- for people ------------------------------------------------------------------------------------------------------


def table(
    collective: str, rows: Sequence[Row], ranks_per_host: int, network: _core.Network, guessed: Sequence[str]
) -> list[str]:
    shared = f", {ranks_per_host} on each host" if ranks_per_host > 1 else ""
    lines = [
        f"# between hosts: latency {human_time(network.alpha)}, {_rate(network.beta)} each way; "
        f"inside a host: latency {human_time(network.host_alpha)}, {_rate(network.host_beta)}; "
        f"further message {human_time(network.gap)}; reducing {_rate(network.gamma)}, copying {_rate(network.copy)}"
    ]
    if guesses := ", ".join(meaning for name, meaning in SHOWN.items() if name in guessed):
        lines.append(f"# assumed, neither measured nor given: {guesses}")
    heads = dict.fromkeys((row.ranks, row.size) for row in rows)
    for ranks, size in heads:
        here = [row for row in rows if (row.ranks, row.size) == (ranks, size)]
        what = "" if collective == "barrier" else f" of {human_size(size)}"
        lines += ["", f"# {collective}{what}, {ranks} ranks{shared}", _line(COLUMNS)]
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
            )
            lines.append(_line(cells))
    return lines


_line = partial(aligned, widths=WIDTHS, left=(0, 1))


def _rate(seconds_per_byte: float) -> str:
    return f"{1e-9 / seconds_per_byte:.3g} GB/s" if seconds_per_byte > 0 else "unlimited"


def write_json(
    options: argparse.Namespace, rows: Sequence[Row], network: _core.Network, guessed: Sequence[str]
) -> None:
    document: dict[str, Any] = {
        "collective": options.collective,
        "ranks_per_host": options.ranks_per_host,
        "network": network._asdict(),
        "guessed": guessed,
        "units": {"time": "s", "busbw": "B/s", "size": "B", "segment": "B, 0: one segment", "network": "s, s/B"},
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    measured.write_json(options.json, document)


def plot(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Plots time over size, one panel per number of ranks, one line per algorithm.

    Algorithms with two levels have dashed lines.
    """
    from ringcomm._src.cli.plotting import make_figure, one_legend

    counts = list(dict.fromkeys(row.ranks for row in rows))
    across = min(2, len(counts))
    down = math.ceil(len(counts) / across)
    figure = make_figure(6.2 * across + 1.8, 3.8 * down + 0.6)
    shared = f", {options.ranks_per_host} ranks on each host" if options.ranks_per_host > 1 else ""
    figure.suptitle(f"{options.collective}, predicted{shared}")
    names = list(dict.fromkeys(row.algorithm.removeprefix("two_level:") for row in rows))
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.flat[len(counts) :]:
        axes.set_visible(False)
    for axes, count in zip(grid.flat, counts, strict=False):
        _picture(axes, [row for row in rows if row.ranks == count], names)
        axes.set_title(f"{count} ranks")
    one_legend(figure, grid.flat[: len(counts)], loc="outside right upper")
    figure.savefig(options.plot, dpi=120)


def _picture(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    from ringcomm._src.cli.plotting import over_sizes

    def times(rows: Iterable[Row]) -> tuple[list[int], list[float]]:
        ordered = sorted(rows, key=lambda row: row.size)
        return [max(1, row.size) for row in ordered], [row.time for row in ordered]

    for name in dict.fromkeys(row.algorithm for row in rows):
        base = name.removeprefix("two_level:")
        own, dashes = times(row for row in rows if row.algorithm == name), "o--" if base != name else "o-"
        axes.plot(*own, dashes, color=f"C{names.index(base) % 10}", markersize=3, linewidth=1.3, label=name)
    axes.plot(*times(row for row in rows if row.chosen), color="black", linewidth=5, alpha=0.15)
    over_sizes(axes, {max(1, row.size) for row in rows}, most=7)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xlabel("size")
    axes.set_ylabel("time (s)")
