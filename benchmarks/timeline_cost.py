"""Measures the cost of the timeline: the same work with and without it, in turns of random order.

    mpiexec -n 2 python benchmarks/timeline_cost.py --json timeline.json

    training      the step of benchmarks/training_step.py with ringcomm's optimizer
    gradients     200 named all-reduces in place of 4 KB each, submitted, then waited for
    ordered 64 KB, ordered 1 KB
                  Communicator.allreduce in place, 50 calls

A time is the slowest rank's, of the work alone: starting and stopping the timeline, which writes
the file, is not timed. `--last N`: the file keeps only the newest events, N to 2 N. Ratios of
medians have a 95 % bootstrap interval.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable

import numpy as np
import torch
from measure import machine, ratio, write
from plain_step import BATCH, WIDTH, make_model, step_of
from training_step import start, timed

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.cli.measured import now, slowest

Work = Callable[[], None]


def training() -> Work:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return step_of(model, hvd.DistributedOptimizer(optimizer, model.named_parameters()), torch.randn(BATCH, WIDTH))


def gradients() -> Work:
    arrays = {f"layer{i}.weight": np.zeros(1024, np.float32) for i in range(200)}

    def work() -> None:
        handles = [ringcomm.allreduce_async_(x, None, name, ringcomm.Sum) for name, x in arrays.items()]
        for handle in handles:
            ringcomm.synchronize(handle)

    return work


def ordered(nbytes: int) -> Work:
    comm, x = ringcomm.communicator(), np.zeros(nbytes // 4, np.float32)

    def work() -> None:
        for _ in range(50):
            comm.allreduce(x, ringcomm.Sum, x)

    return work


def main() -> None:
    options, world = start(__doc__, 60, {"last": 0})
    works = {
        "training": training(),
        "gradients": gradients(),
        "ordered 64 KB": ordered(64 << 10),
        "ordered 1 KB": ordered(1 << 10),
    }
    for work in works.values():
        for _ in range(4):  # creates plans, names and memory
            work()
    times: dict[str, list[float]] = {f"{name}, {kind}": [] for name in works for kind in ("on", "off")}
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.turns):
            kinds = ["on", "off"]
            rng.shuffle(kinds)
            for kind in kinds:
                if kind == "on":
                    hvd.start_timeline(f"{folder}/timeline.json", last=options.last)
                for name, work in works.items():
                    times[f"{name}, {kind}"].append(timed(world, work, 0))
                if kind == "on":
                    hvd.stop_timeline()
    seconds = slowest(world, times)
    ratios = {name: ratio(seconds[f"{name}, on"], seconds[f"{name}, off"]) for name in works}
    if world.rank == 0:
        for name, (middle, low, high) in ratios.items():
            off = statistics.median(seconds[f"{name}, off"]) * 1e6
            print(f"{name:14}{off:10.0f} us without; with the timeline {middle:.3f} of that [{low:.3f}, {high:.3f}]")
        if options.json:
            result = {
                "ranks": world.size,
                "turns": options.turns,
                "date": now(),
                "ratios": ratios,
                "machine": machine(),
            }
            write(options.json, {**result, "seconds": seconds})
    hvd.shutdown()


if __name__ == "__main__":
    main()
