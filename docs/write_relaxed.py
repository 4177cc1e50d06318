"""Fills in the tables of relaxed methods in docs/benchmarks-methods.md, and draws their pictures.

`make docs` runs this script.

The numbers are from benchmarks/results/{stragglers,shared_weights,store_service,store_bursts}.json.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator

from write_benchmarks import DOCS, Result, filled, machine, measure, table

sys.path.insert(0, str(DOCS.parent / "examples"))
from store_bursts import figures
from train_relaxed import METHODS


def read(name: str) -> Result:
    return measure.read(measure.RESULTS / f"{name}.json")


def stragglers() -> Result:
    """Returns the results of the existing methods; the file may have results of removed ones."""
    document = read("stragglers")
    for run in document["runs"]:
        run["methods"] = {name: one for name, one in run["methods"].items() if name in METHODS}
    return document


def stragglers_table() -> Iterator[str]:
    document = stragglers()
    slow = document["slowness"]
    rows = []
    for method in document["runs"][0]["methods"]:
        found = {k: [run["methods"][method] for run in document["runs"] if run["slowness"] == k] for k in slow}
        cells = []
        for k in slow:
            times = [one["reached"] for one in found[k]]
            there = [t for t in times if t is not None]
            star = "*" if len(there) < len(times) else ""
            cells.append(f"{statistics.median(there):.2f}{star}" if there else "not")
        possible = document["seconds"] / (document["unit"] / 1000) * (document["ranks"] - 1 + 1 / 4)
        made = statistics.median(sum(one["steps"]) for one in found[4.0])
        rows.append([f"`{method}`", *cells, f"{made / possible:.2f}"])
    yield from machine([document])
    yield ""
    yield f"The first columns are the seconds to an accuracy of {document['target']}, by the slowness of one rank"
    yield f"(*: not with every seed; not: not within {document['seconds']:g} s). The last column is for a rank 4 times"
    yield "slower: the steps of all ranks, as a share of their steps if no rank waited for another."
    yield ""
    yield from table(["", *(f"{k:g}×" for k in slow), "share of steps"], rows)


def shared_weights_table() -> Iterator[str]:
    document = read("shared_weights")
    rows = []
    for row in document["rows"]:
        own = row["seconds"]
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*measure.ratio(own[a], own[b])) for a, b in PAIRS.values()]
        size = f"{row['nbytes'] >> 20} MB" if row["nbytes"] >= 1 << 20 else f"{row['nbytes'] >> 10} KB"
        rows.append([size, f"{statistics.median(own['ours']) * 1e6:.0f}", *cells])
    yield from machine([document])
    yield ""
    yield from table(["float32 weights", "µs", *PAIRS], rows)


PAIRS = {
    "a server's rank (mpi4py: Send, apply, Recv) / ours": ("server", "ours"),
    "the rule's loop on private memory / ours": ("loop", "ours"),
    "both ranks at the same time: with locks / without": ("both", "racy"),
}


def store_service_table() -> Iterator[str]:
    document = read("store_service")
    answers, steps = document["answers"], document["steps"]
    yield from machine([answers, steps])
    yield ""
    for owner, what in (("sleeps", "sleeps"), ("loops", "runs a loop of Python")):
        median = statistics.median(answers["seconds"][owner]) * 1e3
        yield f"- 4 KB pushed and pulled while the owner's main thread {what}: {median:.3f} ms (median)."
    yield f"- An open store that gets no requests: {answers['seconds']['idle']:.4f} of a core."
    yield ""
    size, rate = steps["size"] >> 20, steps["rate"] / 1e6
    yield f"A step of {size} MB on {steps['ranks']} hosts of one rank, links of {rate:g} Mbit/s:"
    yield ""
    seconds = steps["seconds"]
    rows = []
    for name, times in seconds.items():
        beside = "{:.2f} [{:.2f}, {:.2f}]".format(*measure.ratio(times, seconds["all-reduce"]))
        what = name if name == "all-reduce" else "servers={}, {}".format(*name.split())
        rows.append([what, f"{statistics.median(times):.2f}", beside])
    yield from table(["", "s", "/ all-reduce"], rows)


def store_bursts_table() -> Iterator[str]:
    document = read("store_bursts")
    yield from machine([document])
    yield ""
    rows = []
    for workers, labels in document["seconds"].items():
        both = {name: figures(labels[name]) for name in ("without", "with")}
        cells = [f"{before:.2f} → {both['with'][name]:.2f}" for name, before in both["without"].items()]
        again = " → ".join(str(labels[name]["retransmitted"]) for name in ("without", "with"))
        rows.append([workers, *cells, again])
    heads = ["workers", "median exchange", "95th percentile", "link used", "link idle", "speed", "TCP segments again"]
    yield from table(heads, rows)


TABLES = {
    "stragglers": stragglers_table,
    "shared weights": shared_weights_table,
    "store service": store_service_table,
    "store bursts": store_bursts_table,
}

if __name__ == "__main__":
    import method_plots

    page = DOCS / "benchmarks-methods.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), TABLES), encoding="utf-8")
    method_plots.plot_stragglers(stragglers(), DOCS / "images" / "stragglers.png")
    method_plots.plot_bursts(read("store_bursts"), DOCS / "images" / "store-bursts.png")
