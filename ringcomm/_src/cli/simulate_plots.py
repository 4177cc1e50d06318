"""Draws the rows of `ringcomm simulate`: times over sizes, and a map of the fastest algorithms."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ringcomm._src.cli.plotting import label_ends, make_figure, over_sizes
from ringcomm._src.cli.simulate_report import Row
from ringcomm._src.cli.sizes import human_size

# Okabe and Ito, "Color Universal Design", 2008: distinct also for colour-blind readers.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
OTHER, OTHER_COLOR = "others", "#999999"
CLEAR_LOSS = 0.5  # loss of the runner-up from which a cell has its full colour
MOST_LINES = 6  # lines with a colour in a plot
RATIOS = (1, 2, 4, 8, 16)  # ticks; slower algorithms are above the plot


def plot(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Plots each algorithm's time over that of the fastest one; one panel per number of ranks.

    The algorithms that are fastest most often have colours, and the others are grey.
    """
    counts = list(dict.fromkeys(row.ranks for row in rows))
    across = min(2, len(counts))
    down = math.ceil(len(counts) / across)
    figure = make_figure(8.0, 2.9 * down + 0.5)
    shared = f", {options.ranks_per_host} ranks on each host" if options.ranks_per_host > 1 else ""
    figure.suptitle(f"{options.collective}, predicted{shared} (grey: other algorithms)", fontsize=10)
    colors = dict(zip(_often_fastest(rows), PALETTE, strict=False))
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes in grid.flat[len(counts) :]:
        axes.set_visible(False)
    for axes, count in zip(grid.flat, counts, strict=False):
        _picture(axes, [row for row in rows if row.ranks == count], colors)
        axes.set_title(f"{count} ranks", fontsize=10)
    for line in grid:
        line[0].set_ylabel("time / time of the fastest", fontsize=9)
    figure.savefig(options.plot, dpi=100)


def _often_fastest(rows: Sequence[Row]) -> list[str]:
    """Returns at most MOST_LINES algorithms, the one that is fastest most often first."""
    fastest: dict[tuple[int, int], Row] = {}
    for row in rows:
        best = fastest.setdefault((row.ranks, row.size), row)
        if row.time < best.time:
            fastest[row.ranks, row.size] = row
    return [name for name, _ in Counter(row.algorithm for row in fastest.values()).most_common(MOST_LINES)]


def _picture(axes: Any, rows: Sequence[Row], colors: Mapping[str, str]) -> None:
    least = {size: min(row.time for row in rows if row.size == size) for size in {row.size for row in rows}}
    ends: list[tuple[float, str, str]] = []
    for name in dict.fromkeys(row.algorithm for row in rows):
        own = sorted((row for row in rows if row.algorithm == name), key=lambda row: row.size)
        ratios = [row.time / least[row.size] if least[row.size] > 0 else 1.0 for row in own]
        style: dict[str, Any] = {"color": OTHER_COLOR, "linewidth": 0.6, "alpha": 0.6, "zorder": 1}
        if name in colors:
            style = {"color": colors[name], "linewidth": 1.8}
            if min(ratios) < RATIOS[-1]:
                ends.append((ratios[-1], name.replace(":", ":\n"), colors[name]))
        axes.plot([max(1, row.size) for row in own], ratios, **style)
    over_sizes(axes, {max(1, size) for size in least}, most=5)
    axes.set_yscale("log", base=2)
    axes.set_ylim(RATIOS[0] * 0.93, RATIOS[-1])
    axes.set_yticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS], fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel("size", fontsize=9)
    label_ends(axes, ends)


def heat_map(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Draws the fastest algorithm over ranks and sizes, and how much the second one takes longer.

    The colour is the algorithm; it is paler, and the number (in %) lower, if the loss of the
    runner-up is small.
    """
    ranks, sizes = sorted({row.ranks for row in rows}), sorted({row.size for row in rows})
    cells: dict[tuple[int, int], tuple[str, float]] = {}  # winner and loss, by column and line
    for x, count in enumerate(ranks):
        for y, size in enumerate(sizes):
            best, *others = sorted((r for r in rows if (r.ranks, r.size) == (count, size)), key=lambda row: row.time)
            loss = others[0].time / best.time - 1 if others and best.time > 0 else 0.0
            cells[x, y] = best.algorithm, loss
    wins = Counter(name for name, _ in cells.values())
    named = [name for name, _ in wins.most_common(len(PALETTE))]
    colors = dict(zip(named, PALETTE, strict=False))
    figure = make_figure(8.0, max(3.0, 1.2 + 0.3 * len(sizes)))
    axes = figure.subplots()
    from matplotlib.colors import to_rgb

    def color(name: str, loss: float) -> tuple[float, ...]:
        strength = 0.35 + 0.65 * min(1.0, loss / CLEAR_LOSS)
        return tuple(1 - strength * (1 - part) for part in to_rgb(colors.get(name, OTHER_COLOR)))

    axes.imshow(
        [[color(*cells[x, y]) for x in range(len(ranks))] for y in range(len(sizes))], aspect="auto", origin="lower"
    )
    labels = {at: name for name in colors for at in _middles([at for at, (n, _) in cells.items() if n == name])}
    covered = set(labels)  # cells below a label
    for (x, y), name in labels.items():
        reach = math.ceil(len(name) * len(ranks) / 200 - 0.4)  # 200 characters are as wide as both halves
        covered |= {(x + dx, y) for dx in range(-reach, reach + 1)}
    for (x, y), (name, loss) in cells.items():
        if (x, y) not in covered and len(ranks) <= 24:
            shade = "black" if sum(color(name, loss)) > 1.3 else "white"
            text = f"{loss * 100:.0f}" if loss < 9.995 else ">999"
            axes.text(x, y, text, ha="center", va="center", fontsize=6, color=shade)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "boxstyle": "round,pad=0.2"}
    for (x, y), name in labels.items():
        axes.text(x, y, name, ha="center", va="center", fontsize=8, weight="bold", bbox=box)
    axes.set_xticks(range(len(ranks)), [_short(count) for count in ranks], fontsize=7)
    axes.set_yticks(range(len(sizes)), [human_size(size) for size in sizes], fontsize=7)
    axes.set_xlabel("ranks")
    where = f" on {options.topology.text}" if options.topology else ""
    axes.set_title(f"{options.collective}{where}: fastest algorithm, and loss of the second (%)", fontsize=10)
    figure.savefig(options.heatmap, dpi=100)


def _middles(cells: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the cell in the middle of the largest connected region of cells."""
    left, largest = set(cells), list[tuple[int, int]]()
    while left:
        region = [left.pop()]
        for x, y in region:
            near = {(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)} & left
            region += near
            left -= near
        largest = max(largest, region, key=len)
    if not largest:
        return []
    x, y = (sum(parts) / len(largest) for parts in zip(*largest, strict=True))
    return [min(largest, key=lambda cell: (cell[0] - x) ** 2 + (cell[1] - y) ** 2)]


def _short(count: int) -> str:
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{name}"
    return str(count)
