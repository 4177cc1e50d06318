"""Compares complete training steps: one process, ringcomm, DistributedDataParallel, Horovod's way.

    python benchmarks/training.py --json benchmarks/results/training.json

Each contestant is a separate job under mpiexec, one core and one thread per rank. The jobs take
turns in shuffled order: a turn trains a few steps of one contestant while the others block. A
turn's time is the slowest rank's, per step. "alone" trains on every rank without communication, so
that all contestants compute the same amount. Losses of the contestants that average gradients are
compared first.

The tasks are an MLP (134 MB of gradients), a deep one (100 layers of 32 x 32), a GPT of 17 million
parameters, ResNet-18 on images of 32x32, and a recommender with 8 sparse tables of 100,000 x 32
(training_models.py). The tasks `keras` and `jax`, which need these frameworks, are the first MLP
(training_frameworks.py).
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import machine, ratio, write_merged
from training_frameworks import CONTESTANTS as FRAMEWORKS
from training_models import TASKS
from training_worker import CONTESTANTS

from ringcomm._src.cli.measured import now

WORKER = Path(__file__).with_name("training_worker.py")
STEPS = {"mlp": 2, "deep": 20, "gpt": 2, "resnet": 2, "recommender": 20, "keras": 2, "jax": 2}  # per turn
ALONE, OURS, PEER = "alone", "ringcomm", "DDP, Gloo"


class Job:
    """The ranks of one contestant, which block until `train` asks for steps."""

    def __init__(self, launch: Sequence[str], task: str, contestant: str, ranks: int) -> None:
        self._contestant = contestant
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(120)
            address = f"127.0.0.1:{server.getsockname()[1]}"
            line = [*launch, "-n", str(ranks), sys.executable, str(WORKER), task, contestant, address]
            self._process = subprocess.Popen(line)
            files = [server.accept()[0].makefile("rw") for _ in range(ranks)]
        by_rank = {int(file.readline()): file for file in files}
        self._files = [by_rank[rank] for rank in range(ranks)]

    def train(self, steps: int) -> list[dict[str, float]]:
        """Trains steps on all ranks together. Returns what each rank measured."""
        for file in self._files:
            print(steps, file=file, flush=True)
        answers = [file.readline() for file in self._files]
        if not all(answers):
            raise SystemExit(f"the job of '{self._contestant}' has ended with status {self._process.wait()}")
        return [json.loads(answer) for answer in answers]

    def end(self) -> None:
        for file in self._files:
            file.close()
        self._process.wait(60)


def run(launch: Sequence[str], task: str, names: Sequence[str], ranks: int, turns: int) -> dict[str, Any]:
    """Returns per contestant what each turn measured: seconds of the slowest rank, sums of the
    rest.
    """
    jobs = {name: Job(launch, task, name, ranks) for name in names}
    losses = {name: [one["loss"] for one in job.train(3)] for name, job in jobs.items()}
    compare(losses)
    measured: dict[str, list[list[dict[str, float]]]] = {name: [] for name in names}
    shuffle = random.Random(0)
    for turn in range(turns):
        for name in shuffle.sample(list(names), len(names)):
            measured[name].append(jobs[name].train(STEPS[task]))
        if sys.stderr.isatty():
            print(f"\r{task}: turn {turn + 1} of {turns} ", end="", file=sys.stderr, flush=True)
    for job in jobs.values():
        job.end()
    return {name: summary(rows) for name, rows in measured.items()}


def compare(losses: dict[str, list[float]]) -> None:
    """Raises SystemExit unless all contestants that average gradients reach equal losses."""
    averaged = {name: statistics.mean(own) for name, own in losses.items() if name != ALONE}
    first, expected = next(iter(averaged.items()))
    for name, own in averaged.items():
        if abs(own - expected) > 1e-3 * abs(expected):
            raise SystemExit(f"the mean of the ranks' losses is {own} with {name}, and {expected} with {first}")


def summary(turns: Sequence[Sequence[dict[str, float]]]) -> dict[str, Any]:
    return {
        "seconds": [max(one["seconds"] for one in ranks) for ranks in turns],
        "cpu": statistics.median(sum(one["cpu"] for one in ranks) for ranks in turns),
        "faults": statistics.median(sum(one["faults"] for one in ranks) for ranks in turns),
        "bytes": statistics.median(sum(one["bytes"] for one in ranks) for ranks in turns),
        "peak": max(one["peak"] for ranks in turns for one in ranks),
    }


def report(task: str, rows: dict[str, Any]) -> None:
    alone = rows[ALONE]["seconds"]
    print(f"{task:26} ms/step  added  ringcomm is faster by    CPU s/step  faults/step  MB passed/step  peak MB")
    for name, row in rows.items():
        step = statistics.median(row["seconds"])
        added = statistics.median(a - b for a, b in zip(row["seconds"], alone, strict=True))
        faster = "{:.2f} [{:.2f}, {:.2f}]".format(*ratio(row["seconds"], rows[OURS]["seconds"]))
        print(
            f"{name:26} {step * 1e3:7.1f} {added * 1e3:6.1f}  {faster:22} {row['cpu']:11.3f} "
            f"{row['faults']:12.0f} {row['bytes'] / 1e6:15.1f} {row['peak'] / 1e6:8.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS, *FRAMEWORKS], default=list(TASKS))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, help="for tasks of torch; default: all")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--launch", nargs="+", default=[str(Path(sys.executable).with_name("mpiexec"))])
    parser.add_argument("--json", type=Path, help="file to which the results are added")
    options = parser.parse_args()
    described = machine()
    for task in options.tasks:
        contestants = list(FRAMEWORKS.get(task) or options.contestants or CONTESTANTS)
        rows = run(options.launch, task, contestants, options.ranks, options.turns)
        report(task, rows)
        if options.json:
            result = {"kind": task, "ranks": options.ranks, "date": now(), "machine": described, "rows": rows}
            write_merged(options.json, [result], ("kind", "ranks"))


if __name__ == "__main__":
    main()
