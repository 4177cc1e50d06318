"""A step of DistributedDataParallel on the backend ringcomm between hosts, against what their links allow.

    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python benchmarks/ddp_network.py --rate 200e6

4 x Linear(2048), batch 8, one thread a rank: 67 MB of gradients in buckets of 25 MB. A link needs 2 (h-1)/h S / rate
for them, and DistributedDataParallel gives it nothing to do before its first bucket is full, nor after the last one has
come back. Contestants take turns; times are the slowest rank's:

    ddp          the step
    all-reduce   one all_reduce of as many bytes
    itself       the step with a hook that does nothing; of it, what passes before the first bucket and after the last
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from measure import machine, write
from torch.nn.parallel import DistributedDataParallel

import ringcomm.torch.distributed

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


def slowest(seconds: float) -> float:
    most = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most)


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
    works: dict[str, Any] = {
        "ddp": step_of(False),
        "all-reduce": lambda: dist.all_reduce(whole, dist.ReduceOp.AVG),
        "itself": step_of(True),
    }
    found: dict[str, list[float]] = {name: [] for name in (*works, "alone")}
    for turn in range(options.turns + 2):  # DistributedDataParallel makes its buckets anew after the first step
        for name, work in works.items():
            dist.barrier()
            times_of_buckets.clear()
            begun = time.perf_counter()
            work()
            over = time.perf_counter()
            alone = times_of_buckets[0] - begun + over - times_of_buckets[-1] if times_of_buckets else 0.0
            took, alone = slowest(over - begun), slowest(alone)
            if turn > 1:
                found[name].append(took)
                if name == "itself":
                    found["alone"].append(alone)
    if dist.get_rank() == 0:
        hosts = dist.get_world_size()
        middle = {name: float(np.median(times)) for name, times in found.items()}
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
