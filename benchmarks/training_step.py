"""Compares the communication time of a training step with DistributedDataParallel's on Gloo.

    mpiexec -n 2 python benchmarks/training_step.py --json training.json

8 x Linear(2048), batch 32, one thread per rank: 134 MB of gradients. Four ways take turns in random
order: the ranks train without communication ("alone"), the same with a C library that keeps freed
pages ("kept"), with DDP, and with ringcomm's optimizer. All but the last run in separate processes
without ringcomm, on the rank's core (benchmarks/plain_step.py). A step's time is the slowest
rank's. If ringcomm allocates gradients for torch, it keeps their pages too. The added time is
therefore the median of the differences to "kept" in the same turn. The gradients of ringcomm and
DDP are compared first.

The limit of memory is timed in the same turns ("memory"): without a step, the same number of bytes,
in one shared array, is reduced in place.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import machine, pin, write
from mpi4py import MPI
from plain_step import PlainSteps, make_data, make_model, step_of
from torch import nn

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.cli.measured import interval, now, take_turns


def ours(rank: int) -> tuple[Callable[[], None], nn.Module]:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    wrapped = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    return step_of(model, wrapped, make_data(rank)), model


def reduce_alone(model: nn.Module) -> Callable[[], None]:
    shared = hvd.empty(sum(p.numel() for p in model.parameters())).zero_()
    comm = ringcomm.communicator()
    return lambda: comm.allreduce(shared.numpy(), ringcomm.Sum, shared.numpy())


def timed(world: Any, work: Callable[[], None], _turn: int) -> float:
    """Returns the seconds of the work on this rank; all ranks begin together."""
    world.Barrier()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def start(
    description: str | None, turns: int, numbers: Mapping[str, int] | None = None
) -> tuple[argparse.Namespace, Any]:
    """Returns the options and MPI's world; pins this rank to one core and initialises ringcomm.

    The options include `numbers` by name.
    """
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
    plain = {kind: PlainSteps(kind, world.rank, world.size, world.bcast) for kind in ("alone", "kept", "ddp")}
    step, model = ours(world.rank)
    for _ in range(4):  # creates plans and buckets
        step()
        for one in plain.values():
            one.seconds()
    with tempfile.TemporaryDirectory() as folder:
        theirs = plain["ddp"].gradients(Path(folder) / "gradients.pt")
    for parameter, gradient in zip(model.parameters(), theirs, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)

    def of_plain(kind: str, _turn: int) -> float:
        world.Barrier()
        return plain[kind].seconds()

    works = {
        "memory": partial(timed, world, reduce_alone(model)),
        "alone": partial(of_plain, "alone"),
        "kept": partial(of_plain, "kept"),
        "ringcomm": partial(timed, world, step),
        "ddp": partial(of_plain, "ddp"),
    }
    seconds = take_turns(world, works, options.turns, seed=0, uncounted=1)
    if world.rank == 0:
        report(seconds, world.size, options)
    for one in plain.values():
        one.end()
    hvd.shutdown()


def report(seconds: dict[str, list[float]], ranks: int, options: argparse.Namespace) -> None:
    added = {
        name: [t - kept for t, kept in zip(seconds[name], seconds["kept"], strict=True)] for name in ("ringcomm", "ddp")
    }
    memory = statistics.median(seconds["memory"])
    for name in ("alone", "kept"):
        print(f"{name} {statistics.median(seconds[name]) * 1e3:.1f} ms")
    for name, values in added.items():
        middle, low, high = interval(lambda of: of("added"), {"added": values})
        print(f"{name} adds {middle * 1e3:.1f} ms [{low * 1e3:.1f}, {high * 1e3:.1f}]")
    ratio = statistics.median(added["ringcomm"]) / statistics.median(added["ddp"])
    over_memory = statistics.median(added["ringcomm"]) / memory
    over_alone = interval(lambda of: of("ringcomm") / of("alone"), seconds)
    print(f"ringcomm adds {ratio:.2f} of what DDP with Gloo adds")
    print(f"reducing alone: {memory * 1e3:.1f} ms; ringcomm adds {over_memory:.2f} of that")
    print("a step with ringcomm takes {:.2f} [{:.2f}, {:.2f}] of one alone".format(*over_alone))
    if options.json:
        described = {**machine(), "torch": torch.__version__}
        result = {
            "ranks": ranks,
            "turns": options.turns,
            "date": now(),
            "ratio": ratio,
            "over_memory": over_memory,
            "over_alone": over_alone,
            "machine": described,
        }
        write(options.json, {**result, "seconds": seconds})


if __name__ == "__main__":
    main()
