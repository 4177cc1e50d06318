"""Measures a push and pull of weights in shared memory.

It compares them with messages to a server process, with a loop on private memory, and with and
without locks.

    mpiexec -n 2 python benchmarks/shared_weights.py --json results/shared_weights.json

"ours": the caller applies SGD and copies the weights, while one rank pushes. "server": a rank does
the same with mpi4py: Send the gradient, apply, Recv the weights. "loop": the rule's kernel on this
rank's private memory. "both": as "ours", but both ranks push all the time; each rank's time.
"racy": as "both", without locks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine, pin, ratio, write
from mpi4py import MPI

import ringcomm
from ringcomm._src.cli.measured import now
from ringcomm._src.core import _core
from ringcomm._src.decentralized.shards import Shards
from ringcomm._src.decentralized.workers import Workers

SIZES = (16 << 10, 4 << 20, 64 << 20)
WORLD = MPI.COMM_WORLD


def seconds(work: Callable[[], Any], calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - begun) / calls


def serve(count: int, calls: int) -> None:
    weights, gradient = np.zeros(count, np.float32), np.empty(count, np.float32)
    for _ in range(calls):
        WORLD.Recv(gradient, 0)
        gradient *= np.float32(0.1)
        np.subtract(weights, gradient, out=weights)
        WORLD.Send(weights, 0)


def measured(nbytes: int, turns: int) -> dict[str, list[float]]:
    rank, count = WORLD.Get_rank(), nbytes // 4
    calls = max(3, min(2000, (64 << 20) // nbytes))
    gradient = np.random.default_rng(rank).standard_normal(count).astype(np.float32)
    result, own = np.empty(count, np.float32), np.zeros(count, np.float32)
    workers = Workers(f"bench{nbytes}", ringcomm.global_process_set)
    how = _core.RuleOptions("sgd", lr=0.1)
    shards = Shards(f"bench{nbytes}", workers, own, how, 0, False, [0, 1])
    memory = workers.allocate(nbytes) if rank == 0 else None
    (common,) = workers.addresses([0], memory, f"lockless{nbytes}")

    def ours() -> None:
        shards.apply(gradient, result)

    def loop() -> None:
        update(own.ctypes.data)

    def racy() -> None:
        update(common)

    def update(weights: int) -> None:
        _core.update(how, weights, gradient.ctypes.data, result.ctypes.data, count)

    def ask() -> None:
        WORLD.Send(gradient, 1)
        WORLD.Recv(result, 1)

    found: dict[str, list[float]] = {}
    for turn in range(turns + 1):
        took = {}
        for name, work in (("ours", ours), ("loop", loop)):
            WORLD.Barrier()
            if rank == 0:
                took[name] = seconds(work, calls)
            WORLD.Barrier()
        took["server"] = seconds(ask, calls) if rank == 0 else serve(count, calls) or 0.0
        for name, work in (("both", ours), ("racy", racy)):
            WORLD.Barrier()
            took[name] = seconds(work, calls)
            WORLD.Barrier()
        if turn:
            for name, one in took.items():
                found.setdefault(name, []).append(one)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pin(WORLD.Get_rank())
    ringcomm.init()
    rows = [{"nbytes": nbytes, "seconds": measured(nbytes, options.turns)} for nbytes in SIZES]
    if WORLD.Get_rank() == 0:
        print(f"{'bytes':>10} {'ours us':>9}  server/ours       loop/ours         both/racy")
        for row in rows:
            own = row["seconds"]
            cells = [
                "{:.2f} [{:.2f} {:.2f}]".format(*ratio(own[over], own[under]))
                for over, under in (("server", "ours"), ("loop", "ours"), ("both", "racy"))
            ]
            print(f"{row['nbytes']:10} {np.median(own['ours']) * 1e6:9.1f}  " + "  ".join(cells))
        if options.json:
            write(options.json, {"machine": machine(), "when": now(), "rows": rows})
    ringcomm.shutdown()


if __name__ == "__main__":
    main()
