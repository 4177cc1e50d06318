"""Compares simulated times of all-reduce on a torus with published measurements.

    python benchmarks/published.py

benchmarks/results/published_fugaku_64.json has the measurements, with their source, for 64 KB to
256 MB. The rate of a link is its published one. Two rows fix the parameters that no source gives:
the latency, and the seconds per byte reduced. The other rows are predicted, in one piece, as the
published programs run. The comparison is written to the file.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import measure

from ringcomm._src.cli.sizes import human_size
from ringcomm._src.cli.topologies import parse_topology
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core

FILE = measure.RESULTS / "published_fugaku_64.json"
FOR_LATENCY, FOR_SUMS = ("butterfly_halving", 64 << 10), ("butterfly_halving", 32 << 20)


def predicted(document: dict[str, Any], row: dict[str, Any], alpha: float, gamma: float) -> float:
    values = NETWORK | {"alpha": alpha, "beta": document["beta"], "gap": 0.0, "gamma": gamma}
    topology = parse_topology(document["topology"]).build(document["ranks"], document["beta"])
    menu = _core.Menu("allreduce", document["ranks"], None, _core.Network(**values), topology)
    (option,) = menu.options(row["algorithm"], row["nbytes"], segment=row["nbytes"], window=1)
    return option.price.seconds


def fitted(document: dict[str, Any]) -> tuple[float, float]:
    """Returns the latency and the seconds per byte reduced for which two rows are exact."""
    rows = {(row["algorithm"], row["nbytes"]): row for row in document["rows"]}
    alpha = gamma = 0.0
    for _ in range(50):  # each step corrects one parameter with the other one fixed
        for which, step in ((FOR_LATENCY, 1e-6), (FOR_SUMS, 1e-12)):
            row = rows[which]
            base = predicted(document, row, alpha, gamma)
            latency = which == FOR_LATENCY
            more = predicted(document, row, alpha + step * latency, gamma + step * (not latency))
            change = (row["seconds"] - base) / (more - base) * step
            alpha, gamma = max(0.0, alpha + change * latency), max(0.0, gamma + change * (not latency))
    return alpha, gamma


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=FILE, help="measurements, to which predictions are added")
    options = parser.parse_args()
    document = measure.read(options.json)
    alpha, gamma = fitted(document)
    known = {a.name for a in _core.algorithms() if a.collective == "allreduce"}
    errors = []
    for row in document["rows"]:
        if row["algorithm"] not in known:
            continue
        row["predicted"] = predicted(document, row, alpha, gamma)
        row["error"] = row["predicted"] / row["seconds"] - 1
        row["fitted"] = (row["algorithm"], row["nbytes"]) in (FOR_LATENCY, FOR_SUMS)
        if not row["fitted"]:
            errors.append(abs(row["error"]))
        times = f"predicted {row['predicted'] * 1e3:9.3f} ms, published {row['seconds'] * 1e3:9.3f} ms"
        note = "  (fitted)" if row["fitted"] else ""
        print(f"{human_size(row['nbytes']):>8}  {row['algorithm']:<20} {times}  {row['error']:+.1%}{note}")
    document["network"] = {"alpha": alpha, "beta": document["beta"], "gamma": gamma}
    document["mean_error"], document["largest_error"] = statistics.fmean(errors), max(errors)
    measure.write(options.json, document)
    print(f"# latency {alpha * 1e6:.2f} µs, {1e-9 / gamma:.1f} GB/s reduced")
    print(f"# error {statistics.fmean(errors):.1%} in the mean, {max(errors):.1%} at most, of {len(errors)} rows")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
