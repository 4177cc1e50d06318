"""Colours of contestants, equal in all pictures, and parts that several plots share.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish, and ringcomm's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ringcomm._src.cli.plotting import over_sizes

RINGCOMM = "#b3123f"
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, PURPLE = (
    *("#000000", "#E69F00", "#56B4E9", "#009E73"),
    *("#F0E442", "#0072B2", "#CC79A7"),
)
STYLES: dict[str, dict[str, Any]] = {
    "mpi": {"label": "MPI", "color": BLACK},
    "gloo": {"label": "Gloo", "color": ORANGE},
    "ringcomm": {"label": "ringcomm", "color": RINGCOMM, "linewidth": 2.2},
    "ringcomm bfloat16": {"label": "ringcomm, sent as bfloat16", "color": PURPLE},
    "ordinary": {"label": "ordinary", "color": BLUE},
    "in place": {"label": "in place", "color": GREEN},
    "shared": {"label": "shared", "color": RINGCOMM, "linewidth": 2.2},
}
Interval = tuple[float, float, float, float]  # x, value, and the ends of its interval


def draw_band(axes: Any, points: Sequence[Interval], label: str = "", **style: Any) -> None:
    """Draws a line with the band of its intervals, and its label at the right end."""
    xs, values, lows, highs = zip(*points, strict=True)
    axes.plot(xs, values, **{"linewidth": 1.5} | style)
    axes.fill_between(xs, lows, highs, color=style["color"], alpha=0.2, linewidth=0)
    if label:
        at_end(axes, xs[-1], values[-1], label, style["color"])


def at_end(axes: Any, x: float, y: float, label: str, color: Any) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # hides lines of the axes
    axes.annotate(label, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=8, color=color, bbox=box)


def spread_labels(axes: Any, ends: Iterable[tuple[float, float, str, Any]], least: float) -> None:
    """Writes labels at the ends of lines, with gaps of at least `least` on a linear y axis.

    `ends`: x, y, text and colour of each. Labels stay below the top of the axes.
    """
    ordered = sorted(ends, key=lambda end: end[1])
    heights: list[float] = []
    for _, y, _, _ in ordered:
        heights.append(max(y, heights[-1] + least if heights else y))
    top = axes.get_ylim()[1] - least
    for index in reversed(range(len(heights))):
        heights[index] = min(heights[index], top - (len(heights) - 1 - index) * least)
    for (x, _, label, color), height in zip(ordered, heights, strict=True):
        at_end(axes, x, height, label, color)


def size_axis(axes: Any, sizes: Iterable[int], room: float = 1.0, most: int = 6) -> None:
    """Formats the x axis as sizes; `room`: factor of the last size up to which the axis extends."""
    sizes = sorted(set(sizes))
    over_sizes(axes, sizes, most=most)
    axes.set_xlim(sizes[0] / 1.5, sizes[-1] * max(1.5, room))


def ratio_axis(axes: Any, ticks: Sequence[float]) -> None:
    """Formats the y axis as ratios on a logarithmic scale, with a line at 1."""
    axes.set_yscale("log", base=2)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.axhline(1.0, color=BLACK, linewidth=1)


def one_legend(figure: Any, panels: Iterable[Any], **where: Any) -> None:
    """Adds one legend for all panels, with each label once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), fontsize=8, **where)
