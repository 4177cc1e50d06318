"""Plots the rows of `ringcomm bench`: the ratio to MPI over size, with intervals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ringcomm._src.cli.bench_cases import REDUCING, SHARED_ARRAYS
from ringcomm._src.cli.bench_report import Row

CHOICE, MPI, SHARED, OTHER = "#b3123f", "black", "#0072B2", "#9a9a9a"
NAMES = {"auto": "ringcomm", SHARED_ARRAYS: "ringcomm, shared arrays", "mpi": "MPI"}
MOST_LINES = 6
RATIO, TIME = "MPI's time / ringcomm's time", "time (µs), median"


def plot(options: argparse.Namespace, ranks: int, rows: Sequence[Row]) -> None:
    """Writes the plot; without MPI's times it shows times, and for a barrier bars."""
    from ringcomm._src.cli.plotting import make_figure

    figure = make_figure(8, 4.8)
    axes = figure.subplots()
    dtype = "" if options.collective == "barrier" else f", {options.dtype}"
    op = f" ({options.op})" if options.collective in REDUCING else ""
    axes.set_title(f"{options.collective}{op}, {ranks} ranks{dtype}", fontsize=11, loc="left")
    sized = [row for row in rows if row.size > 0]
    if sized:
        _lines(axes, sized)
    else:
        _bars(axes, rows)
    figure.savefig(options.plot, dpi=100)


def colour(algorithm: str) -> str:
    return {"auto": CHOICE, "mpi": MPI, SHARED_ARRAYS: SHARED}.get(algorithm, OTHER)


def lines_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Returns the rows of at most MOST_LINES contestants, by size.

    The default choice, shared arrays and MPI are among them. The others are those that save the
    most time over the default choice at some size.
    """
    of_name: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.size):
        of_name.setdefault(row.algorithm, []).append(row)
    first = [name for name in ("auto", SHARED_ARRAYS, "mpi") if name in of_name]
    others = sorted((name for name in of_name if name not in first), key=lambda name: _least(of_name[name], rows))
    return {name: of_name[name] for name in [*first, *others][:MOST_LINES]}


def _at(rows: Sequence[Row], size: int) -> list[Row]:
    return [row for row in rows if row.size == size]


def _least(own: Sequence[Row], rows: Sequence[Row]) -> float:
    """Returns the smallest ratio of own time to that of the default choice, else to the fastest."""
    rivals = [row for row in rows if row.algorithm == "auto"] or rows
    return min(row.time / min(rival.time for rival in _at(rivals, row.size)) for row in own)


def _lines(axes: Any, rows: Sequence[Row]) -> None:
    from ringcomm._src.cli.plotting import label_ends, over_sizes

    ratio = all(row.speedup is not None for row in rows)
    shown = lines_of(rows)
    ends: list[tuple[float, str, str]] = []
    for name, own in shown.items():
        if ratio and name == "mpi":
            axes.axhline(1, color=MPI, linewidth=1.4)
            ends.append((1.0, NAMES[name], MPI))
            continue
        sizes, values = [row.size for row in own], [_value(row, ratio) for row in own]
        if name not in NAMES:
            axes.plot(sizes, values, color=OTHER, linewidth=0.9, zorder=1)
            ends.append((values[-1], name, "#606060"))
            continue
        bars = None
        if ratio:
            bars = [
                [value - (row.speedup_low or value) for value, row in zip(values, own, strict=True)],
                [(row.speedup_high or value) - value for value, row in zip(values, own, strict=True)],
            ]
        style: dict[str, Any] = {"marker": "o", "markersize": 4, "linewidth": 2, "capsize": 3, "elinewidth": 1}
        axes.errorbar(sizes, values, bars, color=colour(name), zorder=3, **style)
        ends.append((values[-1], NAMES[name], colour(name)))
    axes.set_yscale("log")
    over_sizes(axes, {row.size for row in rows}, most=9)
    _ticks(axes, ratio)
    axes.set_xlabel("size of the buffer", fontsize=9)
    axes.set_ylabel(f"{RATIO}\nabove 1: ringcomm is faster" if ratio else TIME, fontsize=9)
    label_ends(axes, [(value, name.replace(", ", ",\n"), tint) for value, name, tint in ends])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _value(row: Row, ratio: bool) -> float:
    return row.speedup or 1.0 if ratio else row.time * 1e6


def _ticks(axes: Any, ratio: bool) -> None:
    """Sets ticks without exponents; the axis of a ratio contains 1."""
    low, high = axes.get_ylim()
    low, high = (min(low, 0.95), max(high, 1.05)) if ratio else (low / 1.3, high * 1.3)
    digits = (1, 1.5, 2, 3, 5, 7) if high / low < 200 else (1,)
    ticks = [digit * 10.0**power for power in range(-3, 8) for digit in digits]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axes.set_ylim(low, high)
    axes.set_yticks(ticks, [f"{tick:,g}" if tick < 1e6 else f"{tick:,.0f}" for tick in ticks], fontsize=8)
    axes.minorticks_off()


def _bars(axes: Any, rows: Sequence[Row]) -> None:
    ordered = sorted(rows, key=lambda row: row.time, reverse=True)
    names = [NAMES.get(row.algorithm, row.algorithm) for row in ordered]
    bars = axes.barh(names, [row.time * 1e6 for row in ordered], 0.5, color=[colour(row.algorithm) for row in ordered])
    axes.bar_label(bars, fmt="%.3g", padding=4, fontsize=9)
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(TIME)
