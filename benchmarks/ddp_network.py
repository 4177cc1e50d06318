"""Compares a step of DistributedDataParallel on the backend ringcomm with the limit of links.

    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python benchmarks/ddp_network.py --rate 200e6

4 x Linear(2048), batch 8, one thread a rank: 67 MB of gradients in buckets of 25 MB. A link needs 2
(h-1)/h S / rate for them. It is idle before DistributedDataParallel's first bucket is full, and
after the last one is reduced. Contestants take turns; times are the slowest rank's:

    ddp          the step
    all-reduce   one all_reduce of the same number of bytes
    itself       the step with an empty hook
    alone        that step's time before the first bucket and after the last one
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from measure import machine, write
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel
from training_step import timed

import ringcomm.torch.distributed
from ringcomm._src.cli.measured import take_turns

LAYERS, WIDTH, BATCH = 4, 2048, 8
times_of_buckets: list[float] = []


def nothing(_state, bucket):  # torch reads annotations
    times_of_buckets.append(time.perf_counter())
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def step_of(silent: bool) -> Callable[[], None]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=True)
    if silent:
        ddp.register_comm_hook(None, nothing)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)
    x = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()

    return step


def beside_buckets(world: Any, step: Callable[[], None], _turn: int) -> float:
    """Returns seconds before the first bucket and after the last one; the hook is empty."""
    world.Barrier()
    times_of_buckets.clear()
    begun = time.perf_counter()
    step()
    return times_of_buckets[0] - begun + time.perf_counter() - times_of_buckets[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rate", type=float, required=True, help="of each host's link, in bits a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(ringcomm.torch.distributed.NAME)
    size = 4 * LAYERS * WIDTH * WIDTH
    whole = torch.ones(size // 4)
    world, silent = MPI.COMM_WORLD, step_of(True)
    works = {
        "ddp": partial(timed, world, step_of(False)),
        "all-reduce": partial(timed, world, lambda: dist.all_reduce(whole, dist.ReduceOp.AVG)),
        "itself": partial(timed, world, silent),
        "alone": partial(beside_buckets, world, silent),
    }
    # DistributedDataParallel rebuilds its buckets after the first step.
    found = take_turns(world, works, options.turns, 0, uncounted=2)
    if dist.get_rank() == 0:
        hosts = dist.get_world_size()
        middle = {name: statistics.median(times) for name, times in found.items()}
        link = 2 * (hosts - 1) / hosts * size * 8 / options.rate
        print(
            f"ddp {middle['ddp']:.3f} s: {link / middle['ddp']:.3f} of the links' bound, "
            f"{(link + middle['alone']) / middle['ddp']:.3f} of that and of what cannot overlap\n"
            f"all-reduce {middle['all-reduce']:.3f} s: {link / middle['all-reduce']:.3f} of the bound\n"
            f"nothing sent {middle['itself']:.3f} s, of it {middle['alone']:.3f} s beside the buckets",
            flush=True,
        )
        if options.json:
            about = {"machine": machine(), "hosts": hosts, "rate": options.rate, "size": size, "bound": link}
            write(options.json, about | {"seconds": found})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
