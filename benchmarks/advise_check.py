"""Compares predictions of `ringcomm advise` with measured steps between hosts.

    python benchmarks/cluster.py --hosts 2 -- python benchmarks/advise_check.py measure
    python benchmarks/cluster.py --hosts 4 -- python benchmarks/advise_check.py measure
    python benchmarks/advise_check.py compare

`measure` times steps, one rank per host. It also records what a prediction needs: the step without
communication ("alone"), and the network, as `ringcomm tune` measures it. Layers sleep instead of
computing, as the CPU waits for a GPU, so transfers take no time from them. Each layer takes the
same time, while a prediction from sizes assumes time in proportion to bytes.

`compare` predicts these steps, and those of overlap_forward.py with real computation. On two cores,
transfers take time from computation there, so `compare` tries values of --overhead and keeps the
one with the smallest median error.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import measure
import torch
from mpi4py import MPI
from overlap_forward import MODELS
from torch import nn

import ringcomm.torch as hvd
from ringcomm._src.base.ops import wire_code
from ringcomm._src.cli import step_model as model
from ringcomm._src.cli.measured import now, take_turns
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core
from ringcomm._src.named.process_sets import global_process_set

STEPS = 4  # in a row: a period of LocalSGD
MEASURED, CHECKED = measure.RESULTS / "advise_measured.json", measure.RESULTS / "advise_check.json"
SHARE = 1 / 3  # forward pass, as a share of the step; the default of `advise`
WITHIN = 0.15  # error that a prediction may have
OVERHEADS = [number / 20 for number in range(13)]
EVERY = f"local SGD, every {STEPS} steps"
WIRES: dict[str, Any] = {"compression fp16": "float16", "compression int8": hvd.Compression.int8}
ROWS = [2048, *[256] * 10, 1024]  # rows of 512 elements: an embedding, ten layers, and a head


class Sleep(torch.autograd.Function):
    """Adds a weight to the input, and sleeps in both passes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.shape, ctx.seconds = weight.shape, seconds
        time.sleep(seconds * SHARE)
        return x + weight[0, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        time.sleep(ctx.seconds * (1 - SHARE))
        return gradients[0], torch.full(ctx.shape, 1e-3), None


class Layer(nn.Module):
    def __init__(self, rows: int, seconds: float) -> None:
        super().__init__()
        self.weight, self._seconds = nn.Parameter(torch.zeros(rows, 512)), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = Sleep.apply(x, self.weight, self._seconds)
        return out


class Contestant:
    """A model, its optimizer, and what it calls after steps in a row."""

    def __init__(self, seconds: float, wrap: Callable[[nn.Module, torch.optim.Optimizer], Any]) -> None:
        self._net = nn.Sequential(*(Layer(rows, seconds / len(ROWS)) for rows in ROWS))
        self._optimizer = wrap(self._net, torch.optim.SGD(self._net.parameters(), 1e-3))
        self._complete = getattr(self._optimizer, "complete", int)
        self.finish = getattr(self._optimizer, "finish", int)

    def timed(self, world: Any, _turn: int) -> float:
        """Returns the seconds of one of `STEPS` steps in a row."""
        world.Barrier()
        begun = time.perf_counter()
        for _ in range(STEPS):
            self._optimizer.zero_grad()
            self._net(torch.zeros(1, requires_grad=True)).sum().backward()
            self._optimizer.step()
        seconds = (time.perf_counter() - begun) / STEPS
        self._complete()
        return seconds


def contestants(seconds: float) -> dict[str, Contestant]:
    def ours(**options: Any) -> Contestant:
        return Contestant(
            seconds, lambda net, optimizer: hvd.DistributedOptimizer(optimizer, net.named_parameters(), **options)
        )

    return {
        "alone": Contestant(seconds, lambda net, optimizer: optimizer),
        "synchronous": ours(),
        "overlap_forward": ours(overlap_forward=True),
        "compression fp16": ours(compression=hvd.Compression.fp16),
        "compression int8": ours(compression=hvd.Compression.int8),
        EVERY: Contestant(seconds, lambda net, optimizer: hvd.LocalSGD(optimizer, every=STEPS, model=net)),
    }


def run_measurements(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    os.environ["RINGCOMM_TUNE"] = "on"  # a cached network may have other links
    hvd.init()
    world = MPI.COMM_WORLD
    made = contestants(options.step)
    made["overlap_forward"].timed(world, 0)  # ringcomm learns the order of use in five steps
    works = {name: partial(contestant.timed, world) for name, contestant in made.items()}
    found = take_turns(world, works, options.turns, 0, uncounted=1)
    made[EVERY].finish()
    if world.rank == 0:
        result = {
            "model": "sleeping",
            "hosts": world.size,
            "sizes": [4 * 512 * rows for rows in ROWS],
            "network": global_process_set.session().config.network()._asdict(),
            "seconds": found,
            "date": now(),
            "machine": measure.machine(),
        }
        measure.write_merged(MEASURED, [result], ("model", "hosts"))
        print({name: round(statistics.median(times), 3) for name, times in found.items()}, result["network"])
    hvd.shutdown()


# ---- the comparison --------------------------------------------------------------------------------------------------


def medians(one: dict[str, Any]) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in one["seconds"].items()}


def predicted(method: str, step: model.Step, hosts: int, network: _core.Network, overhead: float = 0.0) -> float:
    price = model.prices(hosts, 1, network, wire_code(WIRES[method]) if method in WIRES else 0)
    if method == EVERY:
        return model.local_sgd(step, price, STEPS)
    return (model.overlap_forward if method == "overlap_forward" else model.synchronous)(step, price, overhead)


def sleeping() -> Iterator[dict[str, Any]]:
    for one in measure.read(MEASURED)["results"]:
        seconds, network = medians(one), _core.Network(**one["network"])
        step = model.step_by_bytes(seconds["alone"], SHARE, one["sizes"])
        for method in seconds:
            if method != "alone":
                guess = predicted(method, step, one["hosts"], network)
                yield row(one, method, seconds["alone"], seconds[method], guess)


def computing(overhead: float) -> Iterator[dict[str, Any]]:
    """Yields predictions of overlap_forward.json, with the rate of its measured all-reduce."""
    for one in measure.read(measure.RESULTS / "overlap_forward.json")["results"]:
        seconds = medians(one)
        sizes = [4 * p.numel() for p in MODELS[one["model"]][0]().parameters()]
        step = model.step_by_bytes(seconds["alone"], SHARE, sizes)
        share = 2 * (one["hosts"] - 1) / one["hosts"]  # bytes that a rank sends, as a share of the buffer
        network = _core.Network(**(NETWORK | {"beta": seconds["all-reduce"] / sum(sizes) / share}))
        for method, name in (("synchronous", "ringcomm"), ("overlap_forward", "overlap_forward")):
            guess = predicted(method, step, one["hosts"], network, overhead)
            yield row(one, method, seconds["alone"], seconds[name], guess)


def row(one: dict[str, Any], method: str, alone: float, took: float, guess: float) -> dict[str, Any]:
    return {
        "model": one["model"],
        "hosts": one["hosts"],
        "method": method,
        "alone": alone,
        "measured": took,
        "predicted": guess,
        "error": guess / took - 1,
    }


def median_error(rows: Sequence[dict[str, Any]]) -> float:
    return statistics.median(abs(one["error"]) for one in rows)


def compare() -> None:
    overhead = min(OVERHEADS, key=lambda value: median_error(list(computing(value))))
    groups = {"sleeping": list(sleeping()), "computing": list(computing(overhead))}
    has = measure.read(MEASURED)["results"][0]["machine"]
    measure.write(
        CHECKED,
        {
            "overhead": overhead,
            "within": WITHIN,
            "without_overhead": list(computing(0.0)),
            "machine": has,
            "date": now(),
            **groups,
        },
    )
    for name, rows in groups.items():
        for one in rows:
            print(*(f"{value:.3f}" if isinstance(value, float) else value for value in one.values()))
        good = sum(abs(one["error"]) <= WITHIN for one in rows)
        print(f"{name}: median error {median_error(rows):.1%}; {good} of {len(rows)} within {WITHIN:.0%}")
    print(f"overhead of the computing ones: {overhead}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "compare"))
    parser.add_argument("--step", type=float, default=0.5, help="seconds of a step's computation")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.action == "measure":
        run_measurements(options)
    else:
        compare()


if __name__ == "__main__":
    main()
