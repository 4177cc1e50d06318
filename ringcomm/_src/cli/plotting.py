"""Provides helpers for the plots of bench and simulate. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ringcomm._src.cli.sizes import human_size


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


def one_legend(figure: Figure, panels: Iterable[Any], **where: Any) -> None:
    """Adds one legend for all panels, with each label once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), fontsize=8, **where)
