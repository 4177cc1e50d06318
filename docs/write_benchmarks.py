"""Fills in the tables of docs/benchmarks.md, benchmarks-network.md, advise.md and other pages.

The numbers are from benchmarks/results/*.json; the pictures of the pages are drawn from them too. A
table is between <!-- NAME --> and <!-- /NAME -->. The text around it is written by hand. If results
are missing, their table is empty. `make docs` runs this script.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "benchmarks"))
import measure  # noqa: E402
import plots  # noqa: E402
import timeline_plots  # noqa: E402
from host_allreduce import MOST, PEERS, failing  # noqa: E402
from machine_table import machine_rows  # noqa: E402
from published_tables import deficiency_table, fugaku_table, nccl_table, summary_table, swing_table, table  # noqa: E402
from torch_distributed import ITSELF, OPTIMIZER, OURS, added  # noqa: E402

from ringcomm._src.cli.measured import interval, loss_of, mean_loss  # noqa: E402
from ringcomm._src.cli.sizes import human_size  # noqa: E402

Result = dict[str, Any]
ADDING = (OURS, ITSELF, OPTIMIZER)


def results(name: str) -> list[Result]:
    file = measure.RESULTS / f"{name}.json"
    found = list(measure.read(file)["results"]) if file.exists() else []
    return sorted(found, key=lambda one: (one["kind"], one.get("ranks", 0)))


def times_faster(peer: Sequence[float], own: Sequence[float]) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*measure.ratio(peer, own))


def micro(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1e6:.3g}" if statistics.median(times) < 1e-3 else _whole(times, 1e6)


def milli(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1e3:.3g}" if statistics.median(times) < 1 else _whole(times, 1e3)


def _whole(times: Sequence[float], factor: float) -> str:
    return f"{statistics.median(times) * factor:.0f}"


def machine(found: Sequence[Result]) -> Iterator[str]:
    """Yields a line for each machine, with the dates of its results."""
    seen: dict[str, set[str]] = {}
    for one in found:
        has = one["machine"]
        parts = has["cpu"], f"{has['cores']} cores", has.get("instruction_set"), has.get("kernel")
        seen.setdefault(", ".join(filter(None, parts)), set()).add(str(one.get("date", one.get("run_at", "")))[:10])
    for text, days in seen.items():
        yield f"Measured on {text} {', '.join(sorted(filter(None, days)))}".rstrip() + "."


def title(one: Result) -> str:
    return f"**{measure.mpi_name(one['machine']['mpi'])}, {one['ranks']} ranks**"


# ---- one host --------------------------------------------------------------------------------------------------------


def host_tables() -> Iterator[str]:
    found = results("host_allreduce")
    yield from machine(found)
    measured = [name for name in PEERS if any(name in row["seconds"] for one in found for row in one["rows"])]
    ours = [head for name in measured for head in (f"{name} (µs)", "× MPI's speed")]
    heads = ["size", "MPI (µs)", *ours, "loop (µs)", "of it"]
    for one in found:
        rows = []
        for row in one["rows"]:
            seconds = row["seconds"]
            mpi, loop = seconds["mpi"], seconds.get("loop")
            cells = [human_size(row["nbytes"]), micro(mpi)]
            for name, peer in ((name, PEERS[name]) for name in measured):
                there = name in seconds  # False for sizes at which it was not measured
                cells += [micro(seconds[name]), times_faster(seconds[peer], seconds[name])] if there else ["", ""]
            share = statistics.median(loop) / statistics.median(seconds["shared"]) if loop else 0
            rows.append([*cells, micro(loop) if loop else "", f"{share:.2f}" if loop else ""])
        yield from ["", title(one), "", *table(heads, rows)]


def machines_table() -> Iterator[str]:
    heads, *rows = machine_rows()
    yield from table(heads, rows)


def host_failing() -> Iterator[str]:
    found = results("host_allreduce")
    cells = failing(found)
    count = sum(name in row["seconds"] for one in found for row in one["rows"] for name in PEERS)
    yield f"{len(cells)} of {count} cells are above {MOST} of MPI's time by the upper end of the interval."
    if cells:
        yield from ["", *[f"- {cell}" for cell in cells]]


def collective_tables() -> Iterator[str]:
    found = results("collectives")
    yield from machine(found)
    for one in found:
        names = list(one["rows"])
        sizes = list(dict.fromkeys(row["size"] for name in names for row in one["rows"][name]))
        lines = []
        for size in sorted(sizes):
            cells = [human_size(size) if size else "none"]
            for name in names:
                cells.append(_cell([row for row in one["rows"][name] if row["size"] == size]))
            lines.append(cells)
        yield from ["", title(one), "", *table(["size", *names], lines)]


def _cell(rows: Sequence[Result]) -> str:
    if not rows:
        return ""
    ours = next(row for row in rows if row["algorithm"] == "auto")
    peer = next(row for row in rows if row["algorithm"] == "mpi")
    rate = f", {ours['busbw'] / 1e9:.3g} GB/s" if ours["size"] >= 65536 else ""
    return f"{micro([ours['time']])} µs{rate}; MPI {micro([peer['time']])} µs: {ours['speedup']:.2f}×"


def point_to_point_tables() -> Iterator[str]:
    found = results("point_to_point")
    yield from machine(found)
    for one in found:
        rows = []
        for row in one["rows"]:
            mpi = row["seconds"]["mpi"]
            cells = [human_size(row["nbytes"]) if row["nbytes"] else "0 B", micro(mpi)]
            for name in ("ordinary", "shared"):
                cells += [micro(row["seconds"][name]), times_faster(mpi, row["seconds"][name])]
            rows.append(cells)
        heads = ["size", "MPI (µs)", "ordinary (µs)", "× MPI's speed", "shared arrays (µs)", "× MPI's speed"]
        yield from ["", title(one), "", *table(heads, rows)]


def torch_distributed_tables() -> Iterator[str]:
    found = results("torch_distributed")
    yield from machine(found)
    for one in found:
        calls, pipelines, steps = [], [], []
        for row in one["rows"]:
            seconds = row["seconds"]
            ours, gloo = seconds["ringcomm"], seconds["gloo"]
            cells = [row["what"], milli(gloo), milli(ours), times_faster(gloo, ours)]
            if "alone" not in seconds:
                if ITSELF in seconds:
                    least = statistics.median(seconds[ITSELF]) / statistics.median(gloo)
                    bounds = [milli(seconds[ITSELF]), f"{max(0.0, 1 - least):.0%}", f"{max(1.0, 1 / least):.2f}"]
                    pipelines.append([*cells, *bounds])
                else:
                    calls.append(cells)
                continue
            adds = (interval(partial(added, who=name), seconds) if name in seconds else None for name in ADDING)
            shares = ("{:.2f} [{:.2f}, {:.2f}]".format(*share) if share else "" for share in adds)
            steps.append([*cells, milli(seconds["alone"]), *shares])
        heads = ["", "Gloo (ms)", "ringcomm (ms)", "× Gloo's speed"]
        yield from ["", f"**{measure.mpi_name(one['machine']['mpi'])}, 2 ranks**", "", *table(heads, calls), ""]
        more = ["one element sent (ms)", "communication, of Gloo's step", "× Gloo's speed at most"]
        yield from [*table([*heads, *more], pipelines), ""]
        heads += [
            "no communication (ms)",
            "adds, of what Gloo adds",
            "nothing sent adds",
            "`DistributedOptimizer` adds",
        ]
        yield from table(heads, steps)


def by_mpi(name: str) -> Iterator[tuple[str, Any]]:
    """Yields the name and the results of each MPI, which are in separate files."""
    for kind in ("mpich", "openmpi"):
        file = measure.RESULTS / f"{name}_{kind}.json"
        if file.exists():
            one = measure.read(file)
            yield measure.mpi_name(one["machine"]["mpi"]), one


def ddp_network_table() -> Iterator[str]:
    rows = []
    for mpi, one in by_mpi("ddp_network"):
        middle = {name: statistics.median(times) for name, times in one["seconds"].items()}
        step, bound = middle["ddp"], one["bound"]
        shares = (bound / middle["all-reduce"], bound / step, (bound + middle["alone"]) / step)
        rows.append([mpi, f"{bound:.2f}", f"{step:.2f}", *(f"{share:.3f}" for share in shares)])
    heads = ["", "bound (s)", "step (s)", "all_reduce, of the bound", "step, of the bound"]
    yield from table([*heads, "of the bound and what cannot overlap"], rows)


def training_table() -> Iterator[str]:
    rows = []
    for mpi, one in by_mpi("training_step"):
        seconds = one["seconds"]
        steps = [milli(seconds[name]) for name in ("alone", "kept", "ringcomm", "ddp", "memory")]
        over = "{:.2f} [{:.2f}, {:.2f}]".format(*one["over_alone"])
        rows.append([mpi, *steps, over, f"{one['ratio']:.2f}"])
    heads = ["", "alone (ms)", "kept (ms)", "ringcomm (ms)", "DDP with Gloo (ms)", "memory (ms)"]
    heads += ["ringcomm, × alone", "adds to kept, × what DDP adds"]
    yield from table(heads, rows)


def models_table() -> Iterator[str]:
    """Yields a row for each model and contestant of benchmarks/training.py."""
    found = results("training")
    yield from machine(found)
    rows = []
    for one in found:
        alone, own = one["rows"]["alone"]["seconds"], one["rows"]["ringcomm"]["seconds"]
        for name, row in one["rows"].items():
            added = statistics.median(a - b for a, b in zip(row["seconds"], alone, strict=True))
            numbers = [milli(row["seconds"]), f"{added * 1e3:.1f}", times_faster(row["seconds"], own)]
            numbers += [f"{row['cpu'] * 1e3:.0f}", f"{row['faults']:.0f}"]
            numbers += [f"{row['bytes'] / 1e6:.1f}", f"{row['peak'] / 1e6:.0f}"]
            rows.append([one["kind"] if name == "alone" else "", name, *numbers])
    heads = ["", "", "step (ms)", "adds to alone (ms)", "× ringcomm's step", "CPU (ms)", "page faults"]
    heads += ["passed (MB)", "memory (MB)"]
    yield from ["", *table(heads, rows)]


MPIS = {"mpich": "MPICH", "openmpi": "Open MPI", "intel": "Intel MPI"}
LIBRARIES = {"gloo": "torch's Gloo", "deepspeed": "DeepSpeed", "oneccl": "oneCCL"}


def peers_table() -> Iterator[str]:
    """Yields a row for each library and setting of benchmarks/allreduce_peers.py."""
    found = results("allreduce_peers")
    yield from machine(found)
    sizes = list(dict.fromkeys(row["nbytes"] for one in found for row in one["rows"]))
    rows: dict[tuple[str, int], list[str]] = {}
    for one in found:
        for row in one["rows"]:
            seconds = row["seconds"]
            for peer in (name for name in seconds if name not in ("ordinary", "in place")):
                named = f"{MPIS[one['kind']]}, {one['setting']}"
                if peer in LIBRARIES:
                    if one["setting"] != "as installed":
                        continue
                    named = f"{LIBRARIES[peer]}, {row['dtype']}"
                elif peer == "mpi in place":
                    named += ", in place"
                faster = times_faster(seconds[peer], seconds["ordinary" if peer == "mpi" else "in place"])
                rows.setdefault((named, one["ranks"]), []).append(faster)
    yield from [
        "",
        *table(
            ["", "ranks", *map(human_size, sizes)], [[name, str(ranks), *row] for (name, ranks), row in rows.items()]
        ),
    ]


def sparse_table() -> Iterator[str]:
    """Yields a row for each share of rows of benchmarks/sparse_as_dense.py."""
    found = results("sparse_as_dense")
    yield from machine(found)
    rows = [
        [f"{row['share']:g}", *(milli(row["seconds"][name]) for name in ("sparse", "dense"))]
        for row in found[0]["rows"]
    ]
    yield from ["", *table(["rows", "sparse (ms)", "`sparse_as_dense=True` (ms)"], rows)]


def overlap_results() -> list[Result]:
    found = measure.read(measure.RESULTS / "overlap_forward.json")["results"]
    return sorted(found, key=lambda one: (one["hosts"], -one["rate"], one["model"], one["ratio"]))


def overlap_table() -> Iterator[str]:
    found = overlap_results()
    yield from machine(found)
    rows = []
    for one in found:
        seconds = {name: statistics.median(times) for name, times in one["seconds"].items()}
        seconds["predicted"] = one["predicted"]
        longer = max(seconds["alone"], seconds["all-reduce"])
        link = f"{one['hosts']} × {one['rate'] / 1e6:g} Mbit/s"
        names = ("alone", "all-reduce", "predicted", "overlap_forward", "ringcomm", "DDP, Gloo")
        times = [f"{seconds[name] * 1e3:.0f}" for name in names]
        shares = [f"{seconds['overlap_forward'] / under:.2f}" for under in (longer, seconds["predicted"])]
        rows.append([one["model"], link, *times, *shares])
    heads = ["model", "hosts", "computation (ms)", "all-reduce (ms)", "predicted (ms)", "overlap_forward (ms)"]
    heads += ["without (ms)", "DDP, Gloo (ms)", "× the longer of the first two", "× predicted"]
    yield from ["", *table(heads, rows)]


def advise_table(name: str) -> Iterator[str]:
    """Yields a row for each prediction of benchmarks/advise_check.py."""
    document = measure.read(measure.RESULTS / "advise_check.json")
    found = document[name]
    yield from machine([document])
    rows = [
        [one["model"], str(one["hosts"]), one["method"]]
        + [f"{one[time] * 1e3:.0f}" for time in ("alone", "predicted", "measured")]
        + [f"{one['error'] * 100:+.1f}"]
        for one in found
    ]
    heads = ["model", "hosts", "method", "one process (ms)", "predicted (ms)", "measured (ms)", "differs by (%)"]
    errors = [abs(one["error"]) for one in found]
    yield from ["", *table(heads, rows), ""]
    good = sum(error <= document["within"] for error in errors)
    yield f"{good} of {len(found)} predictions are within {document['within']:.0%}."
    yield f"The median error is {statistics.median(errors):.1%}."
    if name == "computing":
        bare = [abs(one["error"]) for one in document["without_overhead"]]
        good = sum(error <= document["within"] for error in bare)
        yield f"The fitted overhead is {document['overhead']:g}. With an overhead of 0, {good} are within"
        yield f"{document['within']:.0%}, and the median error is {statistics.median(bare):.1%}."


def growth_table() -> Iterator[str]:
    """Yields a row for each quantity of benchmarks/growth.py."""
    found = results("growth")
    yield from machine(found)
    rows = []
    for one in found:
        for what, points in one["points"].items():
            ends = [f"{n}: {shown(points[n], what)}" for n in (next(iter(points)), list(points)[-1])]
            limit = one["limits"][what]
            rows.append(
                [one["mpi"], one["kind"], what.partition(" (")[0], *ends, f"{one['exponents'][what]:.2f}", f"{limit:g}"]
            )
    yield from ["", *table(["", "of n", "", "first n", "last n", "exponent", "limit"], rows)]


def shown(value: float, what: str) -> str:
    """Returns seconds in ms, and bytes in MB."""
    return f"{value / 1e6:.3g} MB" if what.endswith("(B)") else f"{value * 1e3:.3g} ms"


def starts_table() -> Iterator[str]:
    rows = []
    for one in results("starts"):
        for index, row in enumerate(one["starts"][0]):
            cells = []
            for value in ("median", "p95"):
                found = [start[index]["mpi"][value] / start[index]["ours"][value] for start in one["starts"]]
                cells += [f"{statistics.median(found):.2f}", f"{min(found):.2f}"]
            beside = "busy" if one["busy"] else "quiet"
            what = f"{measure.mpi_name(one['machine']['mpi'])}, {beside}" + ("" if one["bound"] else ", not bound")
            rows.append([what, human_size(row["nbytes"]), *cells])
    heads = ["", "size", "medians, × MPI's speed", "lowest start", "95th percentiles, × MPI's", "lowest start"]
    yield from table(heads, rows)


def timeline_table() -> Iterator[str]:
    rows = []
    for mpi, one in by_mpi("timeline_cost"):
        for name, ratio in one["ratios"].items():
            rows.append([mpi, name, milli(one["seconds"][f"{name}, off"]), "{:.2f} [{:.2f}, {:.2f}]".format(*ratio)])
    yield from table(["", "work", "without (ms)", "with the timeline, × that"], rows)


def chosen() -> Iterator[tuple[str, Result, list[tuple[float, int, str]]]]:
    """Yields a setup, its result, and for each size the loss, the bytes and the chosen algorithm.

    The results are those of `ringcomm bench` and benchmarks/network.py.
    """
    file = measure.RESULTS / "choice.json"
    for one in measure.read(file)["results"] if file.exists() else []:
        auto = [row for row in one["rows"] if row["algorithm"] == "auto"]
        yield one["setup"], one, [(row["loss"], row["size"], row["ran"]) for row in auto]
    for one in results("choice_network"):
        losses = []
        for row in one["rows"]:
            medians = {name: statistics.median(times) for name, times in row["seconds"].items()}
            loss = loss_of(medians["ringcomm"], medians.values())
            losses.append((loss, row["nbytes"], row["chosen"]["ringcomm"]["path"]))
        setup = one["setup"]
        yield f"{setup['hosts']} hosts × {setup['ranks_per_host']}, {setup['rate']}/s", one, losses


def choice_table() -> Iterator[str]:
    """Yields the loss of the automatic choice against the best algorithm of its run, by setup."""
    rows = []
    for setup, one, losses in chosen():
        worst, size, ran = max(losses)
        mean = mean_loss(loss for loss, _, _ in losses)
        sizes = f"{human_size(losses[0][1])} to {human_size(losses[-1][1])}"
        where = f"{human_size(size)}, {ran}" if worst > 0 else ""
        names = [setup, measure.mpi_name(one["machine"]["mpi"]), sizes]
        rows.append([*names, f"{100 * worst:.1f} %", where, f"{100 * mean:.1f} %"])
    yield from table(["", "MPI", "sizes", "worst loss", "where, and what ran", "geometric mean"], rows)


# ---- between hosts ---------------------------------------------------------------------------------------------------


def network_tables(shape: str) -> Iterator[str]:
    found = [one for one in results("network") if _shape(one) == shape]
    yield from machine(found)
    for one in found:
        has = [name for name in ("mpi", "gloo") if name in one["rows"][0]["seconds"]]
        wires = [f"ringcomm {wire}" for wire in [one["setup"]["wire"]] if wire]
        heads = ["size", "what ran", "ringcomm (ms)", "of the bound"]
        for name in wires:
            heads += [f"{name.removeprefix('ringcomm ')} (ms)", "× float32's speed"]
        for name in has:
            heads += [f"{'MPI' if name == 'mpi' else 'Gloo'} (ms)", "of the bound", "× its speed"]
        rows = [_network_row(row, wires, has) for row in one["rows"]]
        yield from ["", f"**{measure.mpi_name(one['machine']['mpi'])}**", "", *table(heads, rows)]


def _shape(one: Result) -> str:
    return f"{one['setup']['hosts']}x{one['setup']['ranks_per_host']}"


def _network_row(row: Result, wires: Sequence[str], peers: Sequence[str]) -> list[str]:
    seconds, chosen = row["seconds"], row["chosen"]["ringcomm"]
    own = seconds["ringcomm"]
    cut = chosen.get("segment", row["nbytes"])
    pieces = f", {human_size(cut)} × {chosen['window']}" if cut < row["nbytes"] else ""
    cells = [human_size(row["nbytes"]), f"`{chosen['path']}`{pieces}", milli(own), _share(row, own)]
    for name in wires:
        cells += [milli(seconds[name]), times_faster(own, seconds[name])]
    for name in peers:
        cells += [milli(seconds[name]), _share(row, seconds[name]), times_faster(seconds[name], own)]
    return cells


def _share(row: Result, times: Sequence[float]) -> str:
    share = row["bound"] / statistics.median(times)
    return f"{share:.3f}" if share > 0.05 else ""


def prediction_tables(name: str) -> Iterator[str]:
    file = measure.RESULTS / f"{name}.json"
    if not file.exists():
        return
    document = measure.read(file)
    yield from machine([document])
    yield f"Predicted at {document['predicted_at']}, run until {document['run_at']}, on {document['kind']}."
    ones = sorted(document["predictions"], key=lambda one: (one["nbytes"], one["predicted"]))
    rows = []
    for one in ones:
        cut = f"{human_size(one['segment'])} × {one['window']}" if one["segment"] < one["nbytes"] else "one piece"
        algorithm = f"`{one['algorithm']}`{' (chosen)' if one['chosen'] else ''}"
        times = f"{one['predicted'] * 1e3:.2f}", f"{one['measured'] * 1e3:.2f}", f"{one['error'] * 100:+.1f}"
        rows.append([human_size(one["nbytes"]), algorithm, cut, *times])
    yield from ["", *table(["size", "algorithm", "pieces", "predicted (ms)", "run (ms)", "differs by (%)"], rows), ""]
    errors, losses = [abs(one["error"]) for one in ones], [one["loss"] for one in document["choices"]]
    yield f"Predictions are off by {statistics.fmean(errors):.1%} in the mean, {max(errors):.1%} at most."
    at_most, mean = f"{max(losses):.1%}", f"{mean_loss(losses):.1%}"
    yield f"The model's choices lost {at_most} at most against the best algorithm, {mean} in the mean."


# ---- pages -----------------------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "host": host_tables,
    "failing": host_failing,
    "collectives": collective_tables,
    "point-to-point": point_to_point_tables,
    "torch-distributed": torch_distributed_tables,
    "ddp-network": ddp_network_table,
    "training": training_table,
    "machines": machines_table,
    "models": models_table,
    "peers": peers_table,
    "sparse": sparse_table,
    "overlap": overlap_table,
    "advise-sleeping": partial(advise_table, "sleeping"),
    "advise-computing": partial(advise_table, "computing"),
    "growth": growth_table,
    "starts": starts_table,
    "timeline": timeline_table,
    "choice": choice_table,
    "4x1": lambda: network_tables("4x1"),
    "8x1": lambda: network_tables("8x1"),
    "4x2": lambda: network_tables("4x2"),
    "prediction": lambda: prediction_tables("prediction_8_hosts"),
    "published": fugaku_table,
    "published-summary": summary_table,
    "published-swing": swing_table,
    "published-deficiencies": deficiency_table,
    "published-nccl": nccl_table,
    "racks": lambda: prediction_tables("prediction_racks"),
}


PAGES = ("benchmarks", "benchmarks-network", "tuning", "simulate", "advise")


def filled(page: str, tables: Mapping[str, Callable[[], Iterator[str]]] = TABLES) -> str:
    for name, make in tables.items():
        head, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        if begin and end:
            page = "".join([head, begin, *(f"{line}\n" for line in make()), end, tail])
    return page


def draw() -> None:
    images = DOCS / "images"
    for ranks, name in ((2, "host_allreduce"), (4, "host_allreduce-4-ranks")):
        if host := [one for one in results("host_allreduce") if one["ranks"] == ranks]:
            plots.plot_host(host, images / f"{name}.png")
    if collectives := results("collectives"):
        plots.plot_collectives(collectives, images / "collectives.png")
    plots.plot_overlap(overlap_results(), images / "overlap-forward.png")
    if models := results("training"):
        plots.plot_training(models, images / "training.png")
    for shape in ("4x1", "8x1", "4x2"):
        if found := [one for one in results("network") if _shape(one) == shape]:
            plots.plot_network(found, images / f"network-{shape}.png")
    for name in ("prediction_8_hosts", "prediction_racks"):
        if (file := measure.RESULTS / f"{name}.json").exists():
            plots.plot_prediction(measure.read(file), images / f"{name.replace('_', '-')}.png")
    if (file := measure.RESULTS / "timeline_steps.json").exists():
        timeline_plots.plot_step(measure.read(file), images / "timeline.png")
        timeline_plots.plot_overlap(measure.read(file), images / "timeline-overlap.png")


if __name__ == "__main__":
    for page in (DOCS / f"{name}.md" for name in PAGES):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    draw()
