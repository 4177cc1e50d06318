"""Plots of the benchmarks' results: a function for each kind of result, which writes one file."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from measure import mpi_name, ratio

from ringcomm._src.cli.bench_cases import bus_factor
from ringcomm._src.cli.plotting import make_figure, one_legend, over_sizes
from ringcomm._src.cli.sizes import parse_link

Result = dict[str, Any]
Points = dict[str, list[tuple[int, float]]]  # by contestant: bytes and a value

STYLES: dict[str, dict[str, Any]] = {
    "mpi": {"label": "MPI's own", "color": "black", "linestyle": "--"},
    "gloo": {"label": "Gloo", "color": "tab:orange"},
    "ringcomm": {"label": "ringcomm", "color": "#b3123f", "linewidth": 2.2},
    "ringcomm bfloat16": {"label": "ringcomm, bfloat16 travels", "color": "tab:purple"},
    "ringcomm unchecked": {"label": "ringcomm, calls not compared", "color": "tab:green"},
    "ordinary": {"label": "ringcomm, ordinary arrays", "color": "tab:blue"},
    "in place": {"label": "ringcomm, ordinary arrays in place", "color": "tab:cyan"},
    "shared": {"label": "ringcomm, shared arrays", "color": "#b3123f", "linewidth": 2.2},
    "loop": {"label": "the limit of memory", "color": "grey", "linestyle": ":"},
}


def plot_host(results: Sequence[Result], file: Path) -> None:
    """Plots time, busbw and share of memory's limit over size; a column per MPI and size."""
    figure, axes = _figure(3, len(results))
    for column, result in enumerate(results):
        # its values equal those of "mpi"
        times = {name: own for name, own in _medians(result["rows"]).items() if name != "mpi in place"}
        factor = bus_factor("allreduce", result["ranks"])
        loop = dict(times.get("loop", []))
        _lines(axes[0][column], {name: [(s, t * 1e6) for s, t in own] for name, own in times.items()})
        _lines(axes[1][column], {name: [(s, s / t * factor / 1e9) for s, t in own] for name, own in times.items()})
        ours = {name: own for name, own in times.items() if name != "loop"}
        _lines(axes[2][column], {name: [(s, loop[s] / t) for s, t in own if s in loop] for name, own in ours.items()})
        axes[0][column].set_title(f"{mpi_name(result['machine']['mpi'])}, {result['ranks']} ranks")
        axes[0][column].set_yscale("log")
        axes[2][column].axhline(1.0, **STYLES["loop"] | {"label": None})
        axes[2][column].set_ylim(0, 1.4)
    for row, label in zip(axes, ("time (µs)", "busbw (GB/s)", "share of the limit"), strict=True):
        row[0].set_ylabel(label)
    _save(figure, axes, file)


def plot_network(results: Sequence[Result], file: Path) -> None:
    """Plots time and the share of the links' bound over size; a column for each setup and MPI."""
    figure, axes = _figure(2, len(results))
    for column, result in enumerate(results):
        setup = result["setup"]
        times = _medians(result["rows"])
        bounds = {row["nbytes"]: row["bound"] for row in result["rows"]}
        large = {size for size, bound in bounds.items() if bound > 1e-4}
        _lines(axes[0][column], {name: [(s, t * 1e3) for s, t in own] for name, own in times.items()})
        shares = {name: [(s, bounds[s] / t) for s, t in own if s in large] for name, own in times.items()}
        _lines(axes[1][column], shares)
        axes[0][column].plot(list(bounds), [bound * 1e3 for bound in bounds.values()], **STYLES["loop"])
        axes[0][column].lines[-1].set_label("the links' bound")
        axes[0][column].set_ylim(bottom=0.05)
        axes[0][column].set_yscale("log")
        hosts = f"{setup['hosts']} hosts x {setup['ranks_per_host']}, {setup['rate']}/s"
        axes[0][column].set_title(f"{hosts}, {mpi_name(result['machine']['mpi'])}", fontsize=10)
        axes[1][column].set_ylim(bottom=0)
        _bandwidth_beside(axes[1][column], setup["rate"], last=column == len(results) - 1)
    axes[0][0].set_ylabel("time (ms)")
    axes[1][0].set_ylabel("share of the bound")
    _save(figure, axes, file)


def _bandwidth_beside(axes: Any, rate: str, last: bool) -> None:
    megabytes = 1e-6 / parse_link(f"{rate},0s")[0]
    beside = axes.secondary_yaxis("right", functions=(lambda s: s * megabytes, lambda b: b / megabytes))
    if last:
        beside.set_ylabel("busbw over each link (MB/s)")


def plot_prediction(document: Result, file: Path) -> None:
    """Plots predicted and measured times of each algorithm over size, and their ratio."""
    figure, axes = _figure(1, 2, width=6.0, height=4.4)
    names = list(dict.fromkeys(one["algorithm"] for one in document["predictions"]))
    for index, name in enumerate(names):
        own = [one for one in document["predictions"] if one["algorithm"] == name]
        sizes, color = [one["nbytes"] for one in own], f"C{index}"
        axes[0][0].plot(sizes, [one["predicted"] * 1e3 for one in own], color=color, label=f"{name}, predicted")
        axes[0][0].plot(sizes, [one["measured"] * 1e3 for one in own], "o", color=color, label=f"{name}, run")
        axes[0][1].plot(sizes, [one["error"] * 100 for one in own], "o-", color=color)
    _sized(axes[0][0], [one["nbytes"] for one in document["predictions"]])
    _sized(axes[0][1], [one["nbytes"] for one in document["predictions"]])
    axes[0][0].set_yscale("log")
    axes[0][0].set_ylabel("time (ms)")
    axes[0][1].axhline(0.0, color="grey", linewidth=0.8)
    axes[0][1].set_ylabel("predicted is longer by (%)")
    figure.suptitle(
        f"all-reduce on {document['hosts']} hosts, {document['rate']}/s, predicted from {document['measured_on_hosts']}"
    )
    _save(figure, axes, file)


CONTESTANTS = {  # contestants of benchmarks/training.py, and their colours
    "ringcomm": "#b3123f",
    "ringcomm under DDP": "tab:purple",
    "ringcomm under DDP, hook": "tab:pink",
    "DDP, Gloo": "tab:orange",
    "DDP, Gloo, bucket views": "#c49a00",
    "Horovod's algorithm": "tab:blue",
    "MultiWorkerMirroredStrategy": "#17becf",
    "JAX, Gloo": "#7f7f7f",
}


def plot_training(results: Sequence[Result], file: Path) -> None:
    """Plots steps as multiples of a step without communication: a group of bars for each model."""
    figure, axes = _figure(1, 1, width=8.0, height=5.4)
    axis, height = axes[0][0], 0.15
    order = ("gpt", "mlp", "resnet", "jax", "keras", "recommender")  # the longest bars below the legend
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


def plot_collectives(results: Sequence[Result], file: Path) -> None:
    """Plots times over size; a row for each MPI and number of ranks, a column for each collective."""
    names = [name for name in results[0]["rows"] if name != "barrier"]
    figure, axes = _figure(len(results), len(names), width=3.2, height=2.7)
    for row, result in zip(axes, results, strict=True):
        for panel, name in zip(row, names, strict=True):
            points: Points = {}
            for one in result["rows"][name]:
                key = "ringcomm" if one["algorithm"] == "auto" else "mpi"
                points.setdefault(key, []).append((one["size"], one["time"] * 1e6))
            _lines(panel, points)
            panel.set_yscale("log")
            panel.set_title(name, fontsize=9)
        row[0].set_ylabel(f"{mpi_name(result['machine']['mpi'])}\n{result['ranks']} ranks, µs", fontsize=9)
    _save(figure, axes, file)


def plot_convergence(document: Result, file: Path, link: float) -> None:
    """Plots training loss over steps, and over a rank's bytes with their time on a link."""
    figure, axes = _figure(1, 2, width=6.0, height=4.6)
    runs = {name: one for name, one in document["runs"].items() if not name.endswith(" -")}
    for index, (name, found) in enumerate(runs.items()):
        losses = _smooth([statistics.fmean(some) for some in zip(*(one["losses"] for one in found), strict=True)])
        sent = found[0]["bytes"][-len(losses) :]
        style = {"label": name, "color": "black" if index == 0 else f"C{index % 10}", "linewidth": 1.3}
        axes[0][0].plot(range(document["steps"] - len(losses), document["steps"]), losses, **style)
        axes[0][1].plot([nbytes / 1e6 for nbytes in sent], losses, **style)
    axes[0][0].set(xlabel="step", ylabel="training loss, mean of 20 steps")
    axes[0][1].set(xlabel="MB sent by a rank", xscale="log")
    seconds = axes[0][1].secondary_xaxis("top", functions=(lambda mb: mb * 8e6 / link, lambda s: s * link / 8e6))
    seconds.set_xlabel(f"seconds that these take at {link / 1e6:.0f} Mbit/s")
    for one in axes[0]:
        one.grid(alpha=0.3)
    _save(figure, axes, file)


def _smooth(values: Sequence[float], over: int = 20) -> list[float]:
    return [statistics.fmean(values[i : i + over]) for i in range(len(values) - over + 1)]


def plot_stragglers(document: Result, file: Path) -> None:
    """Plots time to the accuracy over a rank's slowness, and accuracy over samples."""
    figure, axes = _figure(1, 3, width=5.0, height=4.4)
    methods = list(document["runs"][0]["methods"])
    groups = [methods[: len(methods) // 2], methods[len(methods) // 2 :]]
    limit = document["seconds"]
    for panel, group in zip(axes[0], groups, strict=False):
        for index, method in enumerate(group):
            points = []
            for k in document["slowness"]:
                times = [one["methods"][method]["reached"] for one in document["runs"] if one["slowness"] == k]
                points.append((k, statistics.median(limit * 1.15 if t is None else t for t in times)))
            style = {"color": f"C{index % 10}", "marker": "osv^"[index // 10 + 2 * (group is groups[1])]}
            panel.plot(*zip(*points, strict=True), label=method, markersize=4, linewidth=1.2, **style)
        panel.axhline(limit, color="grey", linestyle=":", linewidth=1)
        panel.set(
            xlabel="times that one of four ranks is slower", ylabel=f"seconds to {document['target']}", xscale="log"
        )
        panel.set_xticks(document["slowness"], [f"{k:g}" for k in document["slowness"]])
        panel.set_xticks([], minor=True)
        panel.set_ylim(0, limit * 1.2)
        panel.grid(alpha=0.3)
    run = next(one for one in document["runs"] if one["slowness"] == 4)
    for index, method in enumerate(["sync", "local", "timed", "diloco", "ssp", "async", "easgd_async", "ad_psgd"]):
        curve = run["methods"][method]["curve"]
        best = [max(a for _, _, a in curve[: i + 1]) for i in range(len(curve))]
        samples = [document.get("batch", 16) * n for _, n, _ in curve]
        axes[0][2].plot(samples, best, color=f"C{index}", linewidth=1.4, label=f"_{method}")
    axes[0][2].legend(axes[0][2].lines, [line.get_label()[1:] for line in axes[0][2].lines], fontsize=8)
    axes[0][2].set(xlabel="samples of all ranks, one 4 times slower", ylabel="best accuracy so far", ylim=(0.6, 1.0))
    axes[0][2].grid(alpha=0.3)
    _save(figure, axes, file)


# ---- parts -----------------------------------------------------------------------------------------------------------


def _medians(rows: Sequence[Result]) -> Points:
    points: Points = {}
    for row in sorted(rows, key=lambda row: row["nbytes"]):
        for name, times in row["seconds"].items():
            points.setdefault(name, []).append((row["nbytes"], statistics.median(times)))
    return points


def _figure(down: int, across: int, width: float = 4.6, height: float = 3.2) -> tuple[Figure, Any]:
    figure = make_figure(width * across, height * down + 0.5)
    return figure, figure.subplots(down, across, squeeze=False)


def _lines(axes: Any, points: Points) -> None:
    sizes: set[int] = set()
    for name, own in points.items():
        if own:
            style = STYLES.get(name, {"label": name})
            axes.plot(*zip(*own, strict=True), **{"marker": "o", "markersize": 2.5, "linewidth": 1.4} | style)
            sizes |= {size for size, _ in own}
    _sized(axes, sizes)


def _sized(axes: Any, sizes: Iterable[int]) -> None:
    over_sizes(axes, sizes, most=6)


def _save(figure: Figure, axes: Any, file: Path) -> None:
    """Saves the figure with one legend for all axes."""
    one_legend(figure, axes.flat, loc="outside lower center", ncols=5)
    figure.savefig(file, dpi=100)


def plot_bursts(result: Result, file: Path) -> None:
    """Plots the use of a server's link over time, and the 95th percentile of an exchange."""
    import numpy as np
    from store_bursts import figures

    styles = {"without": {"color": "#777777"}, "with": {"color": "#b3123f", "linewidth": 2.0}}
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
        percentile.annotate(
            labels[name],
            (len(counts) - 1, values[-1]),
            (-6, 6),
            color=style["color"],
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
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
