"""Starts ranks that run one of these scripts as workers, on this host or a cluster of namespaces.

The result is the value that rank 0 returned. A worker is started as `script --worker TASK`, where
TASK is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import measure
from cluster import Cluster, mpi_kind

from ringcomm._src.cli.measured import now
from ringcomm._src.cli.sizes import parse_sizes

Task = dict[str, Any]


def launcher_of(python: str) -> str:
    """Returns the mpiexec of the MPI in the environment of this interpreter."""
    return str(Path(python).with_name("mpiexec"))


def on_this_host(python: str, script: str, ranks: int, task: Task, timeout: float = 1800.0) -> Any:
    launcher, environment = launcher_of(python), dict(os.environ)
    line = [launcher, "-n", str(ranks)]
    if mpi_kind(launcher) == "openmpi":
        line += ["--oversubscribe", "--bind-to", "none"]
        if ranks > (os.cpu_count() or 1):  # otherwise its ranks share cores badly
            environment["OMPI_MCA_mpi_yield_when_idle"] = "1"

    def start(program: Sequence[str]) -> int:
        return subprocess.run([*line, *program], env=environment, timeout=timeout).returncode

    return _returned(start, python, script, task)


def on_cluster(
    cluster: Cluster, python: str, script: str, ranks_per_host: int, task: Task, timeout: float = 1800.0
) -> Any:
    def start(program: Sequence[str]) -> int:
        return cluster.run(launcher_of(python), program, ranks_per_host, timeout).returncode

    return _returned(start, python, script, task)


def _returned(start: Callable[[Sequence[str]], int], python: str, script: str, task: Task) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "returned.json"
        asked = {**task, "folder": folder, "file": str(file)}
        status = start([python, str(Path(script).resolve()), "--worker", json.dumps(asked)])
        if status:
            raise SystemExit(f"{script} under {python} failed with status {status}")
        return json.loads(file.read_text(encoding="utf-8"))


def give_back(task: Task, result: Any) -> None:
    """Writes the result; for rank 0 of the workers."""
    Path(task["file"]).write_text(json.dumps(result), encoding="utf-8")


def make_parser(description: str | None, sizes: str) -> argparse.ArgumentParser:
    """Returns a parser with common options: sizes, environments of MPIs, result files."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=parse_sizes, default=parse_sizes(sizes), help=f"(default {sizes})")
    parser.add_argument("--python", action="append", help="interpreter of an environment; may be repeated")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    return parser


def for_each_mpi(
    options: argparse.Namespace,
    script: str,
    task: Task,
    starts: int = 1,
    join: Callable[[list[Task]], Task] = lambda results: results[0],
) -> list[Task]:
    """Returns rank 0's result for each MPI and number of ranks; also writes it to a JSON file.

    Parameters
    ----------
    starts : int
        Number of starts of the ranks; the arrays' addresses differ between starts.
    join : Callable[[list[Task]], Task]
        Combines the results of all starts.
    """
    results: list[Task] = []
    for python in pythons(options):
        kind = mpi_kind(launcher_of(python))
        for ranks in map(int, options.ranks.split(",")):
            print(f"# {kind}, {ranks} ranks; medians", flush=True)
            begun = time.perf_counter()
            result = join([on_this_host(python, script, ranks, task) for _ in range(starts)])
            took = time.perf_counter() - begun
            print(f"# took {took:.0f} s", flush=True)
            results.append({"kind": kind, "ranks": ranks, "date": now(), "took": took, **result})
            if options.json:
                measure.write_merged(options.json, results[-1:], ("kind", "ranks"))
    return results


def pythons(options: argparse.Namespace) -> list[str]:
    return options.python or [sys.executable]
