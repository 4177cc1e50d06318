"""Plots of the benchmarks' results: a function for each kind of result, which writes one file.

method_plots.py has those of compression and relaxed synchronisation.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from measure import mpi_name, ratio
from plot_styles import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RINGCOMM,
    SKY,
    STYLES,
    YELLOW,
    Interval,
    at_end,
    draw_band,
    one_legend,
    ratio_axis,
    size_axis,
    spread_labels,
)

from ringcomm._src.cli.plotting import make_figure

Result = dict[str, Any]


def plot_host(results: Sequence[Result], file: Path) -> None:
    """Plots how many times as fast as MPI's all-reduce ringcomm's is; a panel for each MPI."""
    figure = make_figure(8.0, 3.8)
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for panel, result in zip(panels, results, strict=True):
        ratio_axis(panel, (0.5, 1, 2, 4, 8, 16))
        ends = []
        for name in ("ordinary", "in place", "shared"):
            points = [
                (row["nbytes"], *ratio(row["seconds"]["mpi"], row["seconds"][name]))
                for row in result["rows"]
                if name in row["seconds"]
            ]
            color = STYLES[name]["color"]
            draw_band(panel, points, color=color, linewidth=STYLES[name].get("linewidth", 1.5))
            ends.append((points[-1][0], points[-1][1], STYLES[name]["label"], color))
        size_axis(panel, [row["nbytes"] for row in result["rows"]], room=30)
        for index, (x, y, label, color) in enumerate(sorted(ends, key=lambda end: end[1])):
            at_end(panel, x, max(y, 1.02 * 1.25**index), label, color)
        panel.set_title(f"{mpi_name(result['machine']['mpi'])}, {result['ranks']} ranks", fontsize=10)
        panel.set_xlabel("size of the array")
    panels[0].set_ylabel("time of MPI / time of ringcomm")
    figure.suptitle("All-reduce of float32 on one host, by kind of array (bands: 95 %)", fontsize=10)
    figure.savefig(file, dpi=100)


def plot_network(results: Sequence[Result], file: Path) -> None:
    """Plots the share of the links' bound over size; a panel for each MPI. Bands hold all runs."""
    figure = make_figure(8.0, 3.8)
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for panel, result in zip(panels, results, strict=True):
        rows = [row for row in result["rows"] if row["bound"] > 1e-4]
        ends = []
        for name in rows[0]["seconds"]:
            points = [_share_of_bound(row, name) for row in rows]
            style = STYLES[name] | {"label": "", "marker": "o", "markersize": 3}
            draw_band(panel, points, **style)
            label = STYLES[name]["label"].removeprefix("ringcomm, ")
            ends.append((points[-1][0], points[-1][1], label, style["color"]))
        panel.axhline(1.0, color=BLACK, linewidth=1, linestyle=":")
        panel.set_ylim(0)
        spread_labels(panel, ends, 0.06 * panel.get_ylim()[1])
        size_axis(panel, [row["nbytes"] for row in rows], room=200, most=5)
        setup = result["setup"]
        hosts = f"{setup['hosts']} hosts × {setup['ranks_per_host']}, {setup['rate']}/s"
        panel.set_title(f"{hosts}, {mpi_name(result['machine']['mpi'])}", fontsize=10)
        panel.set_xlabel("size of the array")
    panels[0].set_ylabel("time that float32 needs on the links / time")
    figure.savefig(file, dpi=100)


def _share_of_bound(row: Result, name: str) -> Interval:
    times = row["seconds"][name]
    return (row["nbytes"], *(row["bound"] / time for time in (statistics.median(times), max(times), min(times))))


def plot_prediction(document: Result, file: Path) -> None:
    """Plots measured times of each algorithm as multiples of the predicted ones, over size."""
    colors = (RINGCOMM, BLUE, ORANGE, GREEN, PURPLE, SKY)
    figure = make_figure(8.0, 4.0)
    axes = figure.subplots()
    names = list(dict.fromkeys(one["algorithm"] for one in document["predictions"]))
    for index, name in enumerate(names):
        own = [one for one in document["predictions"] if one["algorithm"] == name]
        shift = 2 ** (0.16 * (index - (len(names) - 1) / 2))
        ratios = [one["measured"] / one["predicted"] for one in own]
        axes.plot([one["nbytes"] * shift for one in own], ratios, "o", color=colors[index], markersize=7, label=name)
    size_axis(axes, [one["nbytes"] for one in document["predictions"]], room=2)
    axes.axhline(1.0, color=BLACK, linewidth=1)
    axes.axhspan(0.97, 1.03, color="#dddddd", zorder=0, label="± 3 %")
    axes.set_xlabel("size of the array")
    axes.set_ylabel("measured time / predicted time")
    racks = f" in {document['racks']} racks" if document.get("racks", 1) > 1 else ""
    axes.set_title(
        f"All-reduce on {document['hosts']} hosts{racks}, {document['rate']}/s, predicted from "
        f"{document['measured_on_hosts']} hosts",
        fontsize=10,
    )
    one_legend(figure, [axes], loc="outside lower center", ncols=6)
    figure.savefig(file, dpi=100)


CONTESTANTS = {  # contestants of benchmarks/training.py, and their colours
    "ringcomm": RINGCOMM,
    "ringcomm under DDP": PURPLE,
    "ringcomm under DDP, hook": SKY,
    "DDP, Gloo": ORANGE,
    "DDP, Gloo, bucket views": YELLOW,
    "Horovod's algorithm": BLUE,
    "MultiWorkerMirroredStrategy": GREEN,
    "JAX, Gloo": BLACK,
}


def plot_training(results: Sequence[Result], file: Path) -> None:
    """Plots steps as multiples of a step without communication: a group of bars for each model."""
    figure = make_figure(8.0, 5.9)
    axis, height = figure.subplots(), 0.15
    order = ("gpt", "mlp", "deep", "resnet", "jax", "keras", "recommender")  # the longest bars below the legend
    results = sorted(results, key=lambda result: order.index(result["kind"]))
    for group, result in enumerate(results):
        alone = result["rows"]["alone"]["seconds"]
        names = [name for name in CONTESTANTS if name in result["rows"]]
        for line, name in enumerate(names):
            middle, low, high = ratio(result["rows"][name]["seconds"], alone)
            y = group + (line - (len(names) - 1) / 2) * height
            axis.barh(y, middle, height * 0.9, color=CONTESTANTS[name])
            axis.errorbar(middle, y, xerr=[[middle - low], [high - middle]], color="black", linewidth=1)
            axis.text(high + 0.04, y, f"{middle:.2f}", va="center", fontsize=8)
    axis.axvline(1.0, color="grey", linestyle=":")
    names_of = {"jax": "mlp, JAX", "keras": "mlp, Keras"}
    axis.set_yticks(range(len(results)), [names_of.get(result["kind"], result["kind"]) for result in results])
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_xlabel("time of a step, × the step without communication (2 ranks, 1 thread each)")
    axis.legend(
        [Patch(color=color) for color in CONTESTANTS.values()],
        list(CONTESTANTS),
        frameon=False,
        fontsize=8,
        loc="upper right",
    )
    figure.savefig(file)


def plot_overlap(results: Sequence[Result], file: Path) -> None:
    """Plots steps of overlap_forward.py as multiples of their bound; a panel for each network.

    Results are in the order of the panels and of the bars.
    """
    contestants = {"overlap_forward": RINGCOMM, "ringcomm": BLUE, "DDP, Gloo": ORANGE}
    networks = Counter((one["hosts"], one["rate"]) for one in results)
    most = max(networks.values())
    figure = make_figure(8.0, 4.6)
    panels = figure.subplots(1, len(networks), sharex=True, squeeze=False)[0]
    for panel, network in zip(panels, networks, strict=True):
        own = [one for one in results if (one["hosts"], one["rate"]) == network]
        for group, one in enumerate(own):
            seconds = {name: statistics.median(times) for name, times in one["seconds"].items()}
            bound = max(seconds["alone"], seconds["all-reduce"])
            for line, (name, color) in enumerate(contestants.items()):
                y = group + (line - 1) * 0.25
                panel.barh(y, seconds[name] / bound, 0.23, color=color)
                panel.text(seconds[name] / bound + 0.02, y, f"{seconds[name] / bound:.2f}", va="center", fontsize=7)
            panel.plot([one["predicted"] / bound] * 2, [group - 0.4, group + 0.4], color=BLACK, linewidth=1.5)
        panel.set_yticks(range(len(own)), [f"{one['model']} {one['ratio']:g}" for one in own], fontsize=8)
        panel.set_ylim(most - 0.5, -0.5)
        panel.set_title(f"{network[0]} hosts, {network[1] / 1e6:g} Mbit/s", fontsize=10)
        panel.axvline(1.0, color="grey", linestyle=":")
        panel.set_xlim(0, 2.4)
    panels[0].set_ylabel("model, time of all-reduce / time of computation", fontsize=9)
    panels[len(panels) // 2].set_xlabel("time of a step, × the longer of computation and all-reduce", fontsize=9)
    handles = [Patch(color=color) for color in contestants.values()] + [Line2D([], [], color=BLACK)]
    labels = ["overlap_forward=True", "without", "DDP, Gloo", "predicted, cores not shared"]
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(file, dpi=100)


def plot_collectives(results: Sequence[Result], file: Path) -> None:
    """Plots how many times as fast as MPI each collective is; a line for each MPI and job."""
    names = [name for name in results[0]["rows"] if name != "barrier"]
    figure = make_figure(8.0, 5.2)
    panels = figure.subplots(2, 3, sharey=True)
    styles = dict(
        zip((("mpich", 2), ("mpich", 4), ("openmpi", 2), ("openmpi", 4)), (RINGCOMM, ORANGE, BLUE, SKY), strict=True)
    )
    for panel, name in zip(panels.flat, names, strict=False):
        ratio_axis(panel, (0.5, 1, 2, 4, 8, 16))
        for result in results:
            rows = [row for row in result["rows"][name] if row["algorithm"] == "auto"]
            points = [(row["size"], row["speedup"], row["speedup_low"], row["speedup_high"]) for row in rows]
            label = f"{mpi_name(result['machine']['mpi'])}, {result['ranks']} ranks"
            draw_band(panel, points, color=styles[result["kind"], result["ranks"]])
            panel.lines[-1].set_label(label)
            size_axis(panel, [row["size"] for row in rows], most=5)
        panel.set_title(name, fontsize=10)
    for panel in panels.flat[len(names) :]:
        panel.set_axis_off()
    for row in panels:
        row[0].set_ylabel("time of MPI / of ringcomm")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    panels.flat[-1].legend(handles, labels, loc="center", frameon=False, fontsize=9, title="bands: 95 %")
    figure.savefig(file, dpi=100)
