"""Compares a step with sparse gradients with the same step under `sparse_as_dense=True`.

    mpiexec -n 2 python benchmarks/sparse_as_dense.py --json benchmarks/results/sparse_as_dense.json

The model is one table of 100,000 x 32, trained with SGD. A rank's batch takes rows at random; the
table's first column is their number as a share of all rows, so a row may occur more than once. Both
ways take turns on pinned ranks with one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import measure
import torch
from mpi4py import MPI

import ringcomm.torch as hvd
from ringcomm._src.cli.measured import now

ROWS, WIDTH = 100_000, 32
SHARES = (0.01, 0.05, 0.2, 0.5, 1.0, 4.0)
TURNS, UNCOUNTED = 16, 5


def step_of(share: float, as_dense: bool) -> Callable[[int], object]:
    torch.manual_seed(0)
    table = torch.nn.Embedding(ROWS, WIDTH, sparse=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=0.01), table.named_parameters(), sparse_as_dense=as_dense
    )
    random = torch.Generator().manual_seed(hvd.rank())
    batches = [torch.randint(ROWS, (int(share * ROWS),), generator=random) for _ in range(3)]

    def step(turn: int) -> object:
        optimizer.zero_grad()
        table(batches[turn % 3]).sum().backward()
        return optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    measure.pin(hvd.rank())
    rows = []
    for share in SHARES:
        steps = {name: step_of(share, name == "dense") for name in ("sparse", "dense")}
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(TURNS):
            for name, step in steps.items():
                MPI.COMM_WORLD.Barrier()
                begin = time.perf_counter()
                step(turn)
                seconds[name].append(MPI.COMM_WORLD.allreduce(time.perf_counter() - begin, MPI.MAX))
        counted = {name: times[UNCOUNTED:] for name, times in seconds.items()}
        rows.append({"share": share, "seconds": counted})
        if hvd.rank() == 0:
            print(share, {name: f"{statistics.median(times) * 1e3:.1f} ms" for name, times in counted.items()})
    if hvd.rank() == 0 and options.json:
        described = {"kind": "sgd", "ranks": hvd.size(), "date": now(), "machine": measure.machine(), "rows": rows}
        measure.write_merged(options.json, [described], ("kind", "ranks"))


if __name__ == "__main__":
    main()
