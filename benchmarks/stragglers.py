"""Measures relaxed methods' time and samples to an accuracy, over the slowness of one rank.

    python benchmarks/stragglers.py --json results/stragglers.json --plot ../docs/images/stragglers.png

Runs examples/train_relaxed.py for each slowness and seed, all methods in one job. Every step takes
at least 5 ms, multiplied by the slowness on the last rank. Ranks sleep most of that time, so four
ranks can share two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from jobs import launcher_of
from measure import machine, write
from method_plots import plot_stragglers

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "train_relaxed.py"


def run(options: argparse.Namespace, slowness: float, seed: int) -> dict[str, Any]:
    """Returns by method: time to the accuracy, last accuracy, steps of all ranks, curve."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "curves.json"
        subprocess.run(
            [
                launcher_of(options.python),
                "-n",
                str(options.ranks),
                options.python,
                str(EXAMPLE),
                *("--method", "all", "--straggler", str(slowness), "--seconds", str(options.seconds)),
                *("--unit", str(options.unit), "--seed", str(seed), "--save", str(file)),
            ],
            check=True,
            timeout=1200,
        )
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def summary(document: dict[str, Any]) -> str:
    """Returns medians over the seeds; * marks methods that missed the accuracy with a seed."""
    slow = document["slowness"]
    lines = [f"{'seconds to ' + str(document['target']):16}" + "".join(f"{k:>9g}x" for k in slow) + "   of all steps"]
    for method in document["runs"][0]["methods"]:
        cells = []
        for k in slow:
            times = [run["methods"][method]["reached"] for run in document["runs"] if run["slowness"] == k]
            there = [t for t in times if t is not None]
            cell = f"{statistics.median(there):.2f}{'*' if len(there) < len(times) else ''}" if there else "-"
            cells.append(f"{cell:>10}")
        lines.append(f"{method:16}" + "".join(cells) + f"   {share(document, method):.2f}")
    return "\n".join(lines)


def share(document: dict[str, Any], method: str) -> float:
    """Returns the share of possible steps that were made, if one rank is four times slower."""
    made = [run for run in document["runs"] if run["slowness"] == 4]
    steps = [sum(run["methods"][method]["steps"]) for run in made]
    possible = document["seconds"] / (document["unit"] / 1000) * (document["ranks"] - 1 + 1 / 4)
    return statistics.median(steps) / possible if steps else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--slowness", default="1,2,4,8")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="that a method trains")
    parser.add_argument("--unit", type=float, default=5.0, help="milliseconds of a step")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    slowness = [float(one) for one in options.slowness.split(",")]
    runs = [
        {"slowness": k, "seed": seed, "methods": run(options, k, seed)}
        for seed in range(1, options.seeds + 1)
        for k in slowness
    ]
    document = {
        "machine": machine(),
        "ranks": options.ranks,
        "seconds": options.seconds,
        "unit": options.unit,
        "target": 0.95,
        "slowness": slowness,
        "runs": runs,
    }
    print(summary(document))
    if options.json:
        write(options.json, document)
    if options.plot:
        plot_stragglers(document, options.plot)


if __name__ == "__main__":
    main()
