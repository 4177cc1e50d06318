"""Times 200 gradients of 4 KB, each submitted in place under its name, and then waited for.

    mpiexec -n 2 python benchmarks/named_gradients.py --json named.json

Ways take turns in random order, each with separate arrays; a time is the slowest rank's for all
gradients together:

    named         ringcomm.allreduce_async_ of each NumPy array under its name, then synchronize of each
    named torch   the same with ringcomm.torch and tensors
    lone          one of them, submitted and waited for immediately
    ordered       one Communicator.allreduce of their concatenation, in place
    empty submit  allreduce_async_ of 200 empty arrays, by name; the waits are not timed
    mpi           mpi4py's Allreduce of each array in place

The goal: "named" takes at most 1.5 times "ordered" and "empty submit" together, and half of "mpi".
The first turn, which registers the names, is not counted. Every rank rewrites its inputs before
each timing and reads its results after it; neither is timed. Ratios have a 95 % bootstrap interval.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from measure import machine, write
from mpi4py import MPI
from training_step import start

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.cli.measured import interval, take_turns

# A Way holds the arrays, the timed function, and a function that runs after it with its result.
Way = tuple[list[Any], Callable[[], Any], Callable[[Any], None]]


def ways(world: MPI.Intracomm, gradients: int, nbytes: int) -> dict[str, Way]:
    def arrays(number: int, elements: int) -> list[Any]:
        return [np.zeros(elements, np.float32) for _ in range(number)]

    comm = ringcomm.communicator()
    elements = nbytes // 4
    ours, theirs, empties, one = (arrays(gradients, n) for n in (elements, elements, 0, elements))
    tensors = [torch.zeros(elements) for _ in range(gradients)]
    (whole,) = arrays(1, gradients * elements)
    names = [f"layer{i}.weight" for i in range(gradients)]

    def named(module: Any, them: list[Any], prefix: str) -> Callable[[], None]:
        full = [prefix + name for name in names]

        def run() -> None:
            handles = [module.allreduce_async_(x, None, name, ringcomm.Sum) for x, name in zip(them, full, strict=True)]
            for handle in handles:
                module.synchronize(handle)

        return run

    def submit() -> list[Any]:
        return [ringcomm.allreduce_async_(x, None, name, ringcomm.Sum) for x, name in zip(empties, names, strict=True)]

    def wait(handles: list[Any]) -> None:
        for handle in handles:
            ringcomm.synchronize(handle)

    def mpi() -> None:
        for x in theirs:
            world.Allreduce(MPI.IN_PLACE, x)

    def lone() -> None:
        ringcomm.synchronize(ringcomm.allreduce_async_(one[0], None, "lone", ringcomm.Sum))

    def nothing(result: Any) -> None:
        pass

    return {
        "named": (ours, named(ringcomm, ours, "numpy "), nothing),
        "named torch": (tensors, named(hvd, tensors, "torch "), nothing),
        "lone": (one[:1], lone, nothing),
        "ordered": ([whole], lambda: comm.allreduce(whole, ringcomm.Sum, whole), nothing),
        "empty submit": (empties, submit, wait),
        "mpi": (theirs, mpi, nothing),
    }


def timed(world: MPI.Intracomm, way: Way, turn: int) -> float:
    arrays, run, after = way
    for x in arrays:
        x[...] = world.rank + turn % 8
    world.Barrier()
    begin = time.perf_counter()
    result = run()
    spent = time.perf_counter() - begin
    after(result)
    wanted = world.size * (world.size - 1) / 2 + world.size * (turn % 8)
    for x in arrays:
        assert len(x) == 0 or float(x.min()) == float(x.max()) == wanted
    return spent


def main() -> None:
    options, world = start(__doc__, 51, {"gradients": 200, "bytes": 4096})
    chosen = ways(world, options.gradients, options.bytes)
    contestants = {name: partial(timed, world, way) for name, way in chosen.items()}
    seconds = take_turns(world, contestants, options.turns, seed=0, uncounted=3)
    ratios = {}
    for name in ("named", "named torch"):
        ratios[f"{name} over ordered + empty submit"] = interval(
            lambda of, name=name: of(name) / (of("ordered") + of("empty submit")), seconds
        )
        ratios[f"mpi over {name}"] = interval(lambda of, name=name: of("mpi") / of(name), seconds)
    if world.rank == 0:
        described = machine()
        print(f"{described['mpi']}, {world.size} ranks, {options.gradients} gradients of {options.bytes} bytes")
        for name, times in seconds.items():
            print(f"{name:14}{statistics.median(times) * 1e6:10.1f} us")
        for name, (middle, low, high) in ratios.items():
            print(f"{name}: {middle:.2f} [{low:.2f}, {high:.2f}]")
        if options.json:
            result = {
                "machine": described,
                "ranks": world.size,
                "gradients": options.gradients,
                "nbytes": options.bytes,
                "seconds": seconds,
                "ratios": ratios,
            }
            write(options.json, result)
    ringcomm.shutdown()


if __name__ == "__main__":
    main()
