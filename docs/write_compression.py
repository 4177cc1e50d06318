"""Fills in the tables of formats in docs/benchmarks-methods.md, and draws their picture.

`make docs` runs this script.

The numbers are from benchmarks/results/{compression,convergence,codecs}.json.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from write_benchmarks import DOCS, Result, filled, machine, measure, results, table

from ringcomm import Compression

CONTESTANTS = {"copy", "float32", "bfloat16", *dir(Compression)}  # names of contestants start with one of these
LINK = 200e6  # rate of the link, in bits per second, for the upper axis of the picture


def existing(name: str) -> bool:
    """Returns False for the results of a format that no longer exists."""
    return name.split()[0] in CONTESTANTS


def read(name: str, key: str) -> Result:
    """Returns the results of a file. Its entry `key` has a value for each contestant."""
    document = measure.read(measure.RESULTS / f"{name}.json")
    return document | {key: {name: found for name, found in document[key].items() if existing(name)}}


def convergence_table() -> Iterator[str]:
    document = read("convergence", "runs")
    dense = document["runs"]["float32"]
    rows = []
    for name, runs in document["runs"].items():
        if name.endswith(" -"):
            continue
        without = document["runs"].get(f"{name} -")
        saved = dense[0]["bytes"][-1] / runs[0]["bytes"][-1]
        rows.append([name, _loss(runs), _loss(without) if without else "", f"1/{saved:.1f}"])
    yield from machine([document])
    yield ""
    yield from table(["", "loss", "without error feedback", "bytes of the run"], rows)


def _loss(runs: Sequence[Result]) -> str:
    test = [one["test"] for one in runs]
    return f"{statistics.fmean(test):.3f} [{min(test):.3f}, {max(test):.3f}]"


def codecs_table() -> Iterator[str]:
    document = read("codecs", "seconds")
    count, copy = document["count"], document["seconds"]["copy"]["copy"]
    rows = []
    for name, seconds in document["seconds"].items():
        if name == "copy":
            continue
        ns = {what: f"{statistics.median(times) / count * 1e9:.2f}" for what, times in seconds.items()}
        share = f"{statistics.median(copy) / statistics.median(seconds['encode']):.2f}"
        rows.append([name, ns["encode"], share, ns["add"], ns["decode"], ns.get("torch", "")])
    yield from machine([document])
    yield f"A copy takes {statistics.median(copy) / count * 1e9:.2f} ns an element."
    yield ""
    heads = ["ns an element", "encode, with feedback", "of a copy's speed", "add", "decode", "encode in PyTorch"]
    yield from table(heads, rows)


def speed_table() -> Iterator[str]:
    found = results("compression")
    names = [name for name in found[0]["training"]["seconds"] if name != "float32" and existing(name)]
    rows = []
    for what in ("array", "step"):
        for one in found:
            part = one["rows"][0] if what == "array" else one["training"]
            dense = statistics.median(part["seconds"]["float32"])
            size = f"{one['rows'][0]['nbytes'] >> 20} MB" if what == "array" else "training step, 8.4 MB"
            setup = f"{size}, {one['setup']['hosts']} × {one['setup']['ranks_per_host']}"
            has = part["seconds"]
            cells = [f"{dense / statistics.median(has[name]):.1f}" if name in has else "" for name in names]
            rows.append([f"{setup}, {measure.mpi_name(one['machine']['mpi'])}", *cells])
    yield from machine(found)
    yield ""
    yield from table(["× float32's speed", *names], rows)


TABLES = {"convergence": convergence_table, "codecs": codecs_table, "speed": speed_table}

if __name__ == "__main__":
    import method_plots

    page = DOCS / "benchmarks-methods.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), TABLES), encoding="utf-8")
    method_plots.plot_convergence(read("convergence", "runs"), DOCS / "images" / "compression.png", LINK)
