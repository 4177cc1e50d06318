"""The tables of docs/simulate.md that compare simulated times with published ones.

write_benchmarks.py fills them in, from benchmarks/results/published_*.json.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import measure

from ringcomm._src.cli.sizes import human_size

Result = Mapping[str, Any]
FITTED = "fitted"
NAMES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def document(name: str) -> Result:
    """Returns a file of results; an empty one if the file is missing."""
    file = measure.RESULTS / f"published_{name}.json"
    return measure.read(file) if file.exists() else {}


def error_matrix(heads: Sequence[str], rows: Sequence[tuple[Sequence[str], Result, Sequence[int]]]) -> list[str]:
    """Returns a table with the errors by size, in percent.

    Each row has cells for the first columns, a result with lists of sizes and errors, and the sizes
    that are fitted. A size is in the column of the nearest power of two.
    """
    sizes = sorted({_column(nbytes) for _, result, _ in rows for nbytes in result["nbytes"]})
    lines = []
    for cells, result, fitted in rows:
        shown = {
            _column(nbytes): FITTED if nbytes in fitted else f"{round(100 * error):+d}"
            for nbytes, error in zip(result["nbytes"], result["error"], strict=True)
        }
        lines.append([*cells, *(shown.get(size, "") for size in sizes)])
    return table([*heads, *map(human_size, sizes)], lines)


def _column(nbytes: int) -> int:
    return 1 << round(math.log2(nbytes))


def fugaku_table() -> Iterator[str]:
    found = document("fugaku_64")
    rows = []
    for row in found.get("rows", []):
        if "predicted" in row:
            error = FITTED if row["fitted"] else f"{row['error'] * 100:+.1f}"
            times = f"{row['seconds'] * 1e3:.3f}", f"{row['predicted'] * 1e3:.3f}"
            rows.append([human_size(row["nbytes"]), row["published"], f"`{row['algorithm']}`", *times, error])
    if rows:
        heads = ["size", "published as", "simulated as", "published (ms)", "simulated (ms)", "differs by (%)"]
        yield from [*table(heads, rows), ""]
        yield f"The rows that are not fitted differ by {found['mean_error']:.1%} in the mean,"
        yield f"{found['largest_error']:.1%} at most."


def swing_table() -> Iterator[str]:
    found = document("swing")
    rows = []
    for curve in found.get("curves", []):
        is_fit = all(curve[key] == found["fit"][key] for key in ("figure", "published"))
        fitted = [found["fit"]["nbytes"]] if is_fit else []
        rows.append(([curve["published"], "×".join(map(str, curve["shape"]))], curve, fitted))
    if rows:
        names = list(found["errors"])
        rows.sort(key=lambda row: names.index(row[0][0]))
        yield from error_matrix(["published as", "torus"], rows)


def deficiency_table() -> Iterator[str]:
    """Yields the largest torus of each number of dimensions, and the greatest error of all."""
    found = document("swing").get("deficiencies", [])
    largest = {len(row["shape"]): row for row in found}
    columns = ("swing", "swing simulated", "halving", "halving simulated")
    rows = [["×".join(map(str, row["shape"])), *(f"{row[name]:.3f}" for name in columns)] for row in largest.values()]
    yield from table(["torus", "Swing, formula", "simulated", "halving, formula", "simulated"], rows)
    if found:
        most = max(abs(row["swing simulated"] / row["swing"] - 1) for row in found)
        yield from ["", f"On {len(found)} tori of 8 to 4,096 hosts, the loads of Swing are off by {most:.2%} at most."]


def nccl_table() -> Iterator[str]:
    for cluster in document("nccl").get("clusters", []):
        rows = []
        for its in cluster["tables"]:
            name = NAMES[its["collective"]] + (" (not counted)" if "left_out" in its else "")
            cells = [name, its["version"], f"{its['hosts']} × {its['ranks_per_host']}"]
            rows.append((cells, its, list(its.get("fits", {}).values())))
        yield from [f"**{cluster['name']}**, measured {cluster['source']['measured']}:", ""]
        yield from [*error_matrix(["collective", "NCCL", "hosts × GPUs"], rows), ""]


def summary_table() -> Iterator[str]:
    """Yields the errors of all comparisons."""
    swing, fugaku = document("swing"), document("fugaku_64")
    lines = [(f"[Packets on tori](#swing-packets-on-tori): {name}", own) for name, own in swing["errors"].items()]
    for cluster in document("nccl")["clusters"]:
        for name, own in cluster["errors"].items():
            what = "rings" if name == "ring" else "all-to-all"
            lines.append((f"[NCCL](#nccl-tests-rings-on-gpu-clusters), {cluster['name']}: {what}", own))
    counted = sum("predicted" in row and not row["fitted"] for row in fugaku["rows"])
    errors = {"rows": counted, "mean": fugaku["mean_error"], "largest": fugaku["largest_error"]}
    lines.append(("[Fugaku](#fugaku-bine-trees-and-swing-on-one-port): butterflies and Swing", errors))
    rows = [[name, str(own["rows"]), f"{own['mean']:.1%}", f"{own['largest']:.1%}"] for name, own in lines]
    yield from table(["published times", "rows", "mean error", "greatest error"], rows)
