"""Times TensorFlow's gradients: many small ones in a function, and a step of Keras' fit.

    mpiexec -n 2 python benchmarks/frameworks.py --json frameworks.json

"gradients": 200 of 4 KB in one tf.function, against the same in ringcomm.torch, by named operations
in place. "fit": 8 x Dense(2048), batch 32, one thread per rank, 134 MB of gradients. Four ways to
train: Keras' fit with ringcomm's optimizer ("ringcomm") and without communication ("fit"), and a
loop under MultiWorkerMirroredStrategy ("mirrored"), which Keras' fit does not run under, and
without communication ("loop"). All but the first run in separate processes without ringcomm
(benchmarks/plain_fit.py). A step's time is the slowest rank's. The added time is the median of the
differences to the same way without communication, in the same turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import machine, pin, ratio, write
from mpi4py import MPI
from plain_fit import PlainFit, fit_step, free_port, make_model, one_thread

from ringcomm._src.cli.measured import interval, now, take_turns

COUNT, ELEMENTS = 200, 1024


def of_tensorflow() -> Callable[[], None]:
    import tensorflow as tf

    from ringcomm._src.tensorflow.reduction import GradientReduction

    given = [tf.Variable(tf.ones(ELEMENTS)) for _ in range(COUNT)]
    reduction = GradientReduction("benchmark")

    @tf.function
    def step() -> Any:
        gradients = [one * 1.0 for one in given]  # as backward makes them: in memory that may be reused
        with tf.control_dependencies(reduction(gradients, ())):
            return tf.constant(0)

    return lambda: step().numpy()


def of_torch() -> Callable[[], None]:
    import torch

    import ringcomm.torch as hvd

    torch.set_num_threads(1)
    given = [torch.ones(ELEMENTS) for _ in range(COUNT)]

    def step() -> None:
        handles = [hvd.allreduce_async_(one.mul_(1.0), name=f"torch.{i}") for i, one in enumerate(given)]
        for one in handles:
            hvd.synchronize(one)

    return step


def timed(world: Any, work: Callable[[], None], repeats: int, _turn: int) -> float:
    world.Barrier()
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - begin) / repeats


def gradients(world: Any, turns: int) -> dict[str, Any]:
    works = {"tensorflow": of_tensorflow(), "torch": of_torch()}
    for work in works.values():
        for _ in range(20):
            work()
    contestants = {name: lambda turn, work=work: timed(world, work, 20, turn) for name, work in works.items()}
    seconds = take_turns(world, contestants, turns, seed=0, uncounted=1)
    return {"seconds": seconds, "ratio": ratio(seconds["tensorflow"], seconds["torch"])}


def fit(world: Any, turns: int) -> dict[str, Any]:
    import ringcomm.keras as hvd

    ports = world.allgather(free_port())
    plain = {kind: PlainFit(kind, world.rank, ports) for kind in ("fit", "loop", "mirrored")}
    step = fit_step(make_model(hvd.DistributedOptimizer), world.rank)

    def of_plain(kind: str) -> float:
        world.Barrier()
        return plain[kind].seconds()

    def ours(_turn: int) -> float:
        world.Barrier()
        return step()

    works = {kind: lambda _turn, kind=kind: of_plain(kind) for kind in plain} | {"ringcomm": ours}
    seconds = take_turns(world, works, turns, seed=0, uncounted=3)
    for one in plain.values():
        one.end()
    added = {
        name: [t - alone for t, alone in zip(seconds[name], seconds[without], strict=True)]
        for name, without in (("ringcomm", "fit"), ("mirrored", "loop"))
    }
    return {"seconds": seconds, "added": {name: interval(lambda of: of("x"), {"x": v}) for name, v in added.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--only", choices=("gradients", "fit"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    pin(world.rank)
    one_thread()
    import ringcomm

    ringcomm.init()
    results = {}
    for name, work in (("gradients", gradients), ("fit", fit)):
        if options.only in (None, name):
            results[name] = work(world, options.turns)
    if world.rank == 0:
        report(results, options, world.size)
    ringcomm.shutdown()


def report(results: dict[str, Any], options: argparse.Namespace, ranks: int) -> None:
    if "gradients" in results:
        seconds, (middle, low, high) = results["gradients"]["seconds"], results["gradients"]["ratio"]
        for name, values in seconds.items():
            print(f"{COUNT} gradients of 4 KB, {name}: {statistics.median(values) * 1e6:.0f} us")
        print(f"tensorflow takes {middle:.2f} [{low:.2f}, {high:.2f}] of what torch takes")
    if "fit" in results:
        for name, values in results["fit"]["seconds"].items():
            print(f"a step of {name}: {statistics.median(values) * 1e3:.1f} ms")
        for name, (middle, low, high) in results["fit"]["added"].items():
            print(f"{name} adds {middle * 1e3:.1f} ms [{low * 1e3:.1f}, {high * 1e3:.1f}]")
    if options.json:
        write(options.json, {"ranks": ranks, "turns": options.turns, "date": now(), "machine": machine(), **results})


if __name__ == "__main__":
    main()
