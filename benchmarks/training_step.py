"""A training step on two ranks or more: what communication adds, ours against DistributedDataParallel with Gloo.

    mpiexec -n 2 python benchmarks/training_step.py --json training.json

8 x Linear(2048), batch 32, one thread per rank: 134 MB of gradients. Three ways take turns in random order: the ranks
train without communication ("alone"), with ringcomm's optimizer, and with DDP. A step's time is the slowest rank's; the
added time is the median of the differences to the step alone of the same turn. The gradients of the two are compared
first.

What memory allows is timed in the same turns ("memory"): without a step, the gradients are copied into one array that
the ranks share, and that is reduced in place.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import machine, pin, write
from mpi4py import MPI
from peers import start_gloo
from torch import nn

import ringcomm
import ringcomm.torch as hvd
from ringcomm.cli.measured import interval, now, take_turns

WIDTH, LAYERS, BATCH = 2048, 8, 32


def make_model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, data: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step


def contestants(data: torch.Tensor) -> tuple[dict[str, Callable[[], None]], dict[str, nn.Module]]:
    models: dict[str, nn.Module] = {name: make_model() for name in ("alone", "ringcomm", "ddp")}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3) for name, model in models.items()}
    wrapped = hvd.DistributedOptimizer(optimizers["ringcomm"], models["ringcomm"].named_parameters())
    parallel = nn.parallel.DistributedDataParallel(models["ddp"])
    return {
        "memory": copy_and_reduce(models["alone"]),
        "alone": step_of(models["alone"], optimizers["alone"], data),
        "ringcomm": step_of(models["ringcomm"], wrapped, data),
        "ddp": step_of(parallel, optimizers["ddp"], data),
    }, models


def copy_and_reduce(model: nn.Module) -> Callable[[], None]:
    parameters = list(model.parameters())
    shared = hvd.empty(sum(p.numel() for p in parameters))
    parts = shared.split([p.numel() for p in parameters])
    comm = ringcomm.communicator()

    def run() -> None:
        for part, parameter in zip(parts, parameters, strict=True):
            if parameter.grad is not None:  # before the first step
                part.copy_(parameter.grad.view(-1))
        comm.allreduce(shared.numpy(), ringcomm.Sum, shared.numpy())

    return run


def timed(world: Any, work: Callable[[], None], _turn: int) -> float:
    """Seconds that it takes on this rank; all begin together."""
    world.Barrier()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def start(
    description: str | None, turns: int, numbers: Mapping[str, int] | None = None
) -> tuple[argparse.Namespace, Any]:
    """The options, `numbers` by name among them, and MPI's world, with this rank pinned to one core and ringcomm
    ready."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=turns)
    for name, default in (numbers or {}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    pin(world.rank)
    hvd.init()
    return options, world


def main() -> None:
    options, world = start(__doc__, 30)
    start_gloo(world)
    torch.manual_seed(10 + world.rank)
    steps, models = contestants(torch.randn(BATCH, WIDTH))

    for _ in range(4):  # plans and buckets settle
        for step in steps.values():
            step()
    for ours, theirs in zip(models["ringcomm"].parameters(), models["ddp"].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-7)

    works = {name: partial(timed, world, step) for name, step in steps.items()}
    seconds = take_turns(world, works, options.turns, seed=0)
    if world.rank == 0:
        report(seconds, world.size, options)
    torch.distributed.destroy_process_group()
    hvd.shutdown()


def report(seconds: dict[str, list[float]], ranks: int, options: argparse.Namespace) -> None:
    added = {
        name: [t - alone for t, alone in zip(seconds[name], seconds["alone"], strict=True)]
        for name in ("ringcomm", "ddp")
    }
    memory = statistics.median(seconds["memory"])
    print(f"alone {statistics.median(seconds['alone']) * 1e3:.1f} ms")
    for name, values in added.items():
        middle, low, high = interval(lambda of: of("added"), {"added": values})
        print(f"{name} adds {middle * 1e3:.1f} ms [{low * 1e3:.1f}, {high * 1e3:.1f}]")
    ratio = statistics.median(added["ringcomm"]) / statistics.median(added["ddp"])
    over_memory = statistics.median(added["ringcomm"]) / memory
    print(f"ringcomm adds {ratio:.2f} of what DDP with Gloo adds")
    print(f"copying and reducing alone: {memory * 1e3:.1f} ms; ringcomm adds {over_memory:.2f} of that")
    if options.json:
        described = {**machine(), "torch": torch.__version__}
        result = {
            "ranks": ranks,
            "turns": options.turns,
            "date": now(),
            "ratio": ratio,
            "over_memory": over_memory,
            "machine": described,
        }
        write(options.json, {**result, "seconds": seconds})


if __name__ == "__main__":
    main()
