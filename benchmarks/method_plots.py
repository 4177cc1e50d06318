"""Plots of compression and of relaxed synchronisation, beside those of plots.py."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from plot_styles import BLACK, BLUE, GREEN, ORANGE, PURPLE, RINGCOMM, SKY, spread_labels
from store_bursts import figures

from ringcomm._src.cli.plotting import make_figure

Result = dict[str, Any]
LAST = 20  # steps of a mean of the final loss
BELOW = ("ternary", "topk 1 %", "topk 10 %")  # formats with the label below their point, because another label is there


def plot_convergence(document: Result, file: Path, link: float) -> None:
    """Plots the final training loss of each wire format over the bytes that a rank sent."""
    figure = make_figure(8.0, 4.6)
    axes = figure.subplots()
    for name, found in document["runs"].items():
        final = [statistics.fmean(one["losses"][-LAST:]) for one in found]
        megabytes, loss = found[0]["bytes"][-1] / 1e6, statistics.median(final)
        residual = not name.endswith(" -")
        color = BLACK if name == "float32" else RINGCOMM if residual else "#777777"
        axes.errorbar(
            megabytes,
            loss,
            [[loss - min(final)], [max(final) - loss]],
            marker="o",
            markersize=5,
            color=color,
            linewidth=1,
        )
        label = name if residual else f"{name.removesuffix(' -')}, no feedback"
        above = residual and name not in BELOW
        place = {"xytext": (0, 9 if above else -9), "ha": "center", "va": "bottom" if above else "top"}
        axes.annotate(label, (megabytes, loss), textcoords="offset points", fontsize=8, color=color, **place)
    axes.set(xscale="log", xlabel="MB sent by a rank", ylabel=f"training loss, mean of the last {LAST} steps")
    ticks = (20, 30, 50, 100, 200, 300)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(axes.get_xlim()[0] / 1.2, axes.get_xlim()[1] * 1.2)
    axes.margins(y=0.1)
    seconds = axes.secondary_xaxis("top", functions=(lambda mb: mb * 8e6 / link, lambda s: s * link / 8e6))
    times = (0.7, 1, 2, 5, 10)
    seconds.set_xticks(times, [f"{time:g}" for time in times])
    seconds.minorticks_off()
    seconds.set_xlabel(f"seconds that these take at {link / 1e6:.0f} Mbit/s")
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=100)


FAMILIES = {
    "averages at intervals, delay": ("local", "post_local", "overlapped", "timed", "late"),
    "parameter server, Hogwild": ("async", "inverse", "ssp", "softsync", "backup", "hogwild"),
    "outer optimizers, elastic averaging": ("slowmo", "diloco", "streaming", "easgd", "easgd_async", "easgd_turns"),
    "gossip, thresholds": ("gossip", "choco", "ad_psgd", "ternary"),
}


def plot_stragglers(document: Result, file: Path) -> None:
    """Plots time to the accuracy over a rank's slowness; a panel for each family of methods."""
    methods, limit = list(document["runs"][0]["methods"]), document["seconds"]
    lines = {method: [_reached(document, method, k) for k in document["slowness"]] for method in methods}
    colors = (RINGCOMM, BLUE, ORANGE, GREEN, PURPLE, SKY)
    figure = make_figure(8.0, 6.6)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for panel, (family, members) in zip(panels.flat, FAMILIES.items(), strict=True):
        for method in methods:
            panel.plot(document["slowness"], lines[method], color="#e4e4e4", linewidth=1, zorder=1)
        ends = []
        shown = [method for method in members if method in lines]
        for method, color in (("sync", BLACK), *zip(shown, colors, strict=False)):
            panel.plot(document["slowness"], lines[method], "o-", markersize=3, color=color)
            ends.append((document["slowness"][-1], lines[method][-1], method, color))
        panel.axhline(limit, color="grey", linestyle=":", linewidth=1)
        panel.text(2.6, limit * 1.01, "not reached in time", va="bottom", fontsize=7, color="grey")
        panel.set_title(family, fontsize=10)
        panel.set_xscale("log")
        panel.set_xticks(document["slowness"], [f"{k:g}" for k in document["slowness"]])
        panel.set_xticks([], minor=True)
        panel.set_xlim(0.9, 16)
        panel.set_ylim(0, limit * 1.2)
        spread_labels(panel, ends, 0.085)
        panel.grid(alpha=0.3)
    for panel in panels[1]:
        panel.set_xlabel("times that one of four ranks is slower")
    for panel in panels[:, 0]:
        panel.set_ylabel(f"seconds to accuracy {document['target']}")
    figure.savefig(file, dpi=100)


def _reached(document: Result, method: str, slowness: float) -> float:
    """Returns the median of the times; runs that ended before it count as a little more."""
    late = document["seconds"] * 1.08
    times = [one["methods"][method]["reached"] for one in document["runs"] if one["slowness"] == slowness]
    return statistics.median(late if time is None else time for time in times)


def plot_bursts(result: Result, file: Path) -> None:
    """Plots the use of a server's link over time, and the 95th percentile of an exchange."""
    styles = {"without": {"color": "#777777"}, "with": {"color": RINGCOMM, "linewidth": 2.0}}
    labels = {"without": "all workers together", "with": "one worker admitted"}
    figure = make_figure(8.0, 3.4)
    link, percentile = figure.subplots(1, 2, width_ratios=[3, 2])
    workers = max(result["seconds"], key=int)
    for name, style in styles.items():
        samples = result["seconds"][workers][name]["link"]
        many = round(0.4 / samples["every"])
        use = np.convolve(samples["use"], np.ones(many) / many, "valid")
        link.plot(np.arange(len(use)) * samples["every"], 100 * use, label=labels[name], **style)
        counts = sorted(result["seconds"], key=int)
        values = [figures(result["seconds"][count][name])["percentile_95"] for count in counts]
        percentile.plot(range(len(counts)), values, "o-", **style)
        above = name == "without"  # the label, on the side without a line
        where = {"xytext": (-6, 8) if above else (6, -10), "ha": "right" if above else "left"}
        text = {"color": style["color"], "textcoords": "offset points", "fontsize": 8}
        percentile.annotate(labels[name], (1, values[1]), **where, **text)
        percentile.set_xticks(range(len(counts)), counts)
    link.set_xlim(0, 12)
    link.set_ylim(0, 125)
    link.set_yticks(range(0, 101, 20))
    link.set_xlabel("time since all workers began (s)")
    link.set_ylabel("use of the server's link in 0.4 s (%)")
    link.set_title(f"{workers} workers", fontsize=9)
    link.legend(fontsize=8, loc="upper right", ncols=2, frameon=False)
    percentile.set_ylim(0, 1.2 * percentile.get_ylim()[1])
    percentile.set_xlim(-0.2, len(counts) - 0.6)
    percentile.set_xlabel("workers")
    percentile.set_ylabel("95th percentile / time alone")
    percentile.set_title("exchange of a worker", fontsize=9)
    figure.savefig(file, dpi=100)
