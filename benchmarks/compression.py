"""Compares wire formats with float32 on shaped links, for one array and for training steps.

ringcomm.stats() counts the bytes that were sent.

    python benchmarks/compression.py --python .venv/bin/python --python .venv-openmpi/bin/python --json compression.json

Needs root and iproute2 (cluster.py), and torch. A setup is hosts x ranks on each, a colon and the
links' rate. Formats take turns, one call each. Training uses 8 layers of 512 x 512 float32, 8.4 MB
of gradients, and a batch of 8.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jobs
import measure
from cluster import Cluster, mpi_kind
from network import parse_setups

from ringcomm._src.cli.measured import now

SETUPS = "4x1:200mbit,4x2:200mbit"
SIZES = "16M"


def formats(gradients: bool = False) -> dict[str, Any]:
    """Returns the formats by name. `gradients`: for an optimizer."""
    from ringcomm import Compression as C

    found = {
        "float32": None,
        "bfloat16": "bfloat16",
        "int8": C.int8,
        "int4": C.int4,
        "ternary": C.ternary,
        "onebit": C.onebit,
        "topk 1 %": C.topk(0.01),
        "topk bf16 1 %": C.topk(0.01, values="bf16"),
    }
    return found | {"powersgd 4": C.powersgd(4)} if gradients else found


# ---- on the ranks ----------------------------------------------------------------------------------------------------
def worker(task: dict[str, Any]) -> None:
    os.environ["XDG_CACHE_HOME"] = task["folder"]  # ignores measurements of another cluster's links
    import numpy as np
    from mpi4py import MPI

    import ringcomm

    world = MPI.COMM_WORLD
    rows = []
    with ringcomm.Communicator(world) as comm:
        for nbytes in task["sizes"]:
            x = np.random.default_rng(comm.rank).standard_normal(nbytes // 4).astype(np.float32)
            calls, out = {}, np.empty_like(x)
            for name, wire in formats().items():
                feedback = ringcomm.Feedback(x.size) if wire is not None and name != "bfloat16" else None
                how = {"wire": wire, "feedback": feedback}
                calls[name] = lambda how=how, x=x, out=out: comm.allreduce(x, out=out, **how)
            rows.append({"nbytes": nbytes, **in_turns(calls, comm, world, task["turns"])})
    steps = training(world, task["turns"]) if task["training"] else None
    if world.rank == 0:
        give = {"machine": measure.machine(), "rows": rows, "training": steps}
        jobs.give_back(task, give)


def in_turns(calls: dict[str, Callable[[], Any]], comm: Any, world: Any, turns: int) -> dict[str, Any]:
    """Returns the slowest rank's seconds in each turn, and the busiest rank's bytes a call."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    sent: dict[str, float] = {}
    for turn in range(turns + 1):
        for name, call in calls.items():
            comm.stats(reset=True)
            world.Barrier()
            begun = time.perf_counter()
            call()
            took = max(world.allgather(time.perf_counter() - begun))
            sent[name] = max(world.allgather(comm.stats().of("allreduce").bytes_sent))
            if turn > 0:  # the first turn is a warm-up
                seconds[name].append(took)
    return {"seconds": seconds, "sent": sent}


def training(world: Any, turns: int) -> dict[str, Any]:
    import torch

    import ringcomm
    import ringcomm.torch as hvd

    hvd.init(world)
    torch.set_num_threads(1)
    rigs: dict[str, Callable[[], None]] = {}
    for name, wire in formats(gradients=True).items():
        torch.manual_seed(0)
        net = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(8)])
        compression = hvd.Compression.none if wire is None else hvd.Compression.bf16 if name == "bfloat16" else wire
        if name not in ("float32", "bfloat16"):
            compression = compression(warmup_steps=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=1e-4), net.named_parameters(), compression=compression
        )
        batch = torch.randn(8, 512)

        def step(net: Any = net, optimizer: Any = optimizer, batch: Any = batch) -> None:
            optimizer.zero_grad()
            net(batch).pow(2).mean().backward()
            optimizer.step()

        for _ in range(3):
            step()
        rigs[name] = step
    seconds: dict[str, list[float]] = {name: [] for name in rigs}
    sent: dict[str, float] = {}
    for _ in range(turns):
        for name, step in rigs.items():
            ringcomm.stats(reset=True)
            world.Barrier()
            begun = time.perf_counter()
            step()
            seconds[name].append(max(world.allgather(time.perf_counter() - begun)))
            sent[name] = max(world.allgather(ringcomm.stats().of("allreduce").bytes_sent))
    hvd.shutdown()
    return {"seconds": seconds, "sent": sent}


# ---- the cluster -----------------------------------------------------------------------------------------------------
def show(what: str, found: dict[str, Any]) -> None:
    dense = found["seconds"]["float32"]
    for name, times in found["seconds"].items():
        faster = "{:6.2f} [{:.2f}, {:.2f}]".format(*measure.ratio(dense, times))
        fewer = found["sent"]["float32"] / max(1, found["sent"][name])
        middle = statistics.median(times) * 1e3
        print(f"{what:>10} {name:13} {middle:9.1f} ms, {faster} times as fast, 1/{fewer:.2f} of the bytes", flush=True)


def measured(python: str, setup: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    task = {**setup, "sizes": options.sizes, "turns": options.turns, "training": not options.no_training}
    kind = mpi_kind(jobs.launcher_of(python))
    print(f"# {kind}, {setup['hosts']} hosts x {setup['ranks_per_host']}, {setup['rate']}", flush=True)
    with Cluster(setup["hosts"], setup["rate"]) as cluster:
        result = jobs.on_cluster(cluster, python, __file__, setup["ranks_per_host"], task, options.timeout)
    for row in result["rows"]:
        show(f"{row['nbytes'] >> 20} MB", row)
    if result["training"]:
        show("step", result["training"])
    return {"kind": kind, "setup": setup, "date": now(), "turns": options.turns, **result}


def main() -> int:
    parser = jobs.make_parser(__doc__, SIZES)
    parser.add_argument("--setups", type=parse_setups, default=parse_setups(SETUPS), help=f"(default {SETUPS})")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each setup")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return 0
    for setup in options.setups:
        for python in jobs.pythons(options):
            result = measured(python, setup, options)
            if options.json:
                measure.write_merged(options.json, [result], ("kind", "setup"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
