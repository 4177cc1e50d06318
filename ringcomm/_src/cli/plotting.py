"""Provides helpers for the plots of bench and simulate. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ringcomm._src.cli.sizes import human_size

LINE = 0.055  # height of a line of text, as a part of the axis' height


def make_figure(width: float, height: float) -> Figure:
    """Returns a figure that needs no display. `width`, `height`: in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def over_sizes(axes: Any, sizes: Iterable[int], most: int) -> None:
    """Formats the x axis as sizes on a logarithmic scale, with at most `most` ticks."""
    ticks = sorted(set(sizes))
    ticks = ticks[:: math.ceil(len(ticks) / most)] or [1]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [human_size(tick) for tick in ticks], fontsize=8)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def label_ends(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Writes the names of lines beside their ends, without overlap, on a logarithmic y axis.

    `ends`: value, name and colour of each. A line of text takes `LINE` of the axis' height.
    """
    low, high = map(math.log, axes.get_ylim())
    ordered = sorted(ends)
    halves = [LINE / 2 * (1 + name.count("\n")) for _, name, _ in ordered]
    places: list[float] = []
    for (value, _, _), half in zip(ordered, halves, strict=True):
        below = places[-1] + halves[len(places) - 1] if places else -math.inf
        places.append(max((math.log(value) - low) / (high - low), below + half))
    above = 1.0
    for index in reversed(range(len(places))):  # names stay below the top
        places[index] = min(places[index], above - halves[index])
        above = places[index] - halves[index]
    for (_, name, color), place in zip(ordered, places, strict=True):
        style = {"color": color, "fontsize": 8, "va": "center"}
        axes.annotate(name, (1.01, place), xycoords="axes fraction", annotation_clip=False, **style)
