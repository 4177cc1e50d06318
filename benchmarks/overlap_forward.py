"""Compares steps with overlap_forward=True with steps without, and with DDP on Gloo, between hosts.

    python benchmarks/cluster.py --hosts 2 --rate 200mbit --mtu 9000 -- \\
        env MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1099511627776 \\
        python benchmarks/overlap_forward.py --rate 200e6 --json benchmarks/results/overlap_forward.json

The variables make the C library keep freed pages. Else the computation of equal contestants differs
by up to a half, because some of them get new pages in each step. With packets of 9000 bytes, the
simulated network takes less time from the cores that compute.

One rank per host, one thread per rank. The batch is so large that computation takes communication
divided by 0.3, 1 and 3. A time is that of a few steps in a row, on the slowest rank; contestants
take turns. "alone" computes without communication. The bound of a step is the larger of "alone" and
the time of an all-reduce of all gradients. It cannot be reached: the gradients that the forward
pass uses first are ready last. So one step of "alone" is recorded, and `ringcomm advise` predicts
from it the step on a machine where communication takes no time from computation.
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
import torch.nn.functional as F
from measure import machine, write_merged
from mpi4py import MPI
from peers import start_gloo
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from training_models import GPT, resnet18

import ringcomm.torch as hvd
from ringcomm._src.cli.measured import now, take_turns
from ringcomm._src.cli.step_model import Step
from ringcomm._src.cli.step_model import overlap_forward as predicted

STEPS = 3  # in a row

Data = tuple[torch.Tensor, torch.Tensor]


def mlp() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())))


def gpt() -> nn.Module:
    return GPT(tokens=4096, width=288, blocks=4)


def tokens(batch: int) -> Data:
    text = torch.randint(4096, (batch, 65))
    return text[:, :-1], text[:, 1:]


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Data], Callable[..., torch.Tensor]]] = {
    "mlp": (mlp, lambda batch: (torch.randn(batch, 1024), torch.zeros(batch, 1024)), F.mse_loss),
    "gpt": (gpt, tokens, lambda logits, target: F.cross_entropy(logits.flatten(0, 1), target.flatten())),
    "cnn": (
        partial(resnet18, 32),
        lambda batch: (torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))),
        F.cross_entropy,
    ),
}


class Contestant:
    """A model, its optimizer, and what it does after steps in a row."""

    def __init__(self, model: nn.Module, optimizer: Any, loss: Callable[..., torch.Tensor], end: Callable[[], Any]):
        self._model, self._optimizer, self._loss, self._end = model, optimizer, loss, end

    def step(self, data: Data) -> None:
        self._optimizer.zero_grad()
        self._loss(self._model(data[0]), data[1]).backward()
        self._optimizer.step()

    def recorded(self, data: Data) -> Step:
        """Returns the times of one step, and the time at which each gradient is ready."""
        parameters = list(self._model.parameters())  # in the order of use, in these models
        ready: dict[torch.Tensor, float] = {}

        def note(parameter: torch.Tensor) -> None:
            ready[parameter] = time.perf_counter()

        hooks = [parameter.register_post_accumulate_grad_hook(note) for parameter in parameters]
        begun = time.perf_counter()
        self._optimizer.zero_grad()
        loss = self._loss(self._model(data[0]), data[1])
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        self._optimizer.step()
        end = time.perf_counter()
        for hook in hooks:
            hook.remove()
        return Step(
            forward=forward - begun + end - backward,
            backward=backward - forward,
            sizes=tuple(4 * p.numel() for p in parameters),
            ready=tuple(ready[p] - forward for p in parameters),
        )

    def timed(self, world: Any, data: Data, _turn: int) -> float:
        world.Barrier()
        self.step(data)
        begun = time.perf_counter()
        for _ in range(STEPS):
            self.step(data)
        seconds = (time.perf_counter() - begun) / STEPS
        self._end()
        return seconds


def contestants(name: str) -> dict[str, Contestant]:
    make, _, loss = MODELS[name]

    def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
        return (
            torch.optim.AdamW(model.parameters(), lr=1e-4)
            if name == "gpt"
            else torch.optim.SGD(model.parameters(), 1e-3, 0.9)
        )

    def ours(overlap: bool) -> Contestant:
        model = make()
        optimizer = hvd.DistributedOptimizer(optimizer_of(model), model.named_parameters(), overlap_forward=overlap)
        return Contestant(model, optimizer, loss, optimizer.complete if overlap else int)

    torch.manual_seed(1)
    alone, wrapped = make(), DistributedDataParallel(make(), gradient_as_bucket_view=True)
    return {
        "alone": Contestant(alone, optimizer_of(alone), loss, int),
        "overlap_forward": ours(True),
        "ringcomm": ours(False),
        "DDP, Gloo": Contestant(wrapped, optimizer_of(wrapped), loss, int),
    }


def seconds_alone(world: Any, contestant: Contestant, data: Data) -> float:
    contestant.step(data)
    return float(world.allreduce(contestant.timed(world, data, 0), MPI.MAX))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ratios", nargs="+", type=float, default=[0.3, 1, 3], help="communication / computation")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rate", type=float, required=True, help="of each host's link, in bits a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    world = MPI.COMM_WORLD
    start_gloo(world, "10.77.0.1", "eth0")
    results = []
    for name in options.models:
        made = contestants(name)
        count = sum(p.numel() for p in MODELS[name][0]().parameters())
        link = 2 * (world.size - 1) / world.size * 4 * count * 8 / options.rate
        for ratio in options.ratios:
            batch = 8
            for _ in range(3):  # larger batches compute faster per sample
                seconds = seconds_alone(world, made["alone"], MODELS[name][1](batch))
                batch = max(1, round(batch * link / ratio / seconds))
            data = MODELS[name][1](batch)
            flat = torch.zeros(count)
            works: dict[str, Callable[[int], float]] = {
                one: partial(contestant.timed, world, data) for one, contestant in made.items()
            }

            def all_reduce(_turn: int, flat: torch.Tensor = flat) -> float:
                world.Barrier()
                begun = time.perf_counter()
                hvd.allreduce_(flat, name="flat")
                return time.perf_counter() - begun

            works["all-reduce"] = all_reduce
            found = take_turns(world, works, options.turns, 0, uncounted=1)
            step = made["alone"].recorded(data)
            step = step.slower(statistics.median(found["alone"]) / step.seconds)
            if world.rank == 0:
                middle = {one: statistics.median(times) for one, times in found.items()}
                bound = max(middle["alone"], middle["all-reduce"])
                rate = middle["all-reduce"] / (4 * count)
                possible = predicted(step, lambda _, nbytes, rate=rate: nbytes * rate)
                print(
                    f"{name:4} ratio {ratio:3}: "
                    + ", ".join(f"{one} {took:.3f} s" for one, took in middle.items())
                    + f", predicted {possible:.3f} s"
                    + f"; overlap_forward / bound {middle['overlap_forward'] / bound:.3f}",
                    flush=True,
                )
                results.append(
                    {
                        "model": name,
                        "ratio": ratio,
                        "hosts": world.size,
                        "rate": options.rate,
                        "batch": batch,
                        "elements": count,
                        "predicted": possible,
                        "seconds": found,
                        "date": now(),
                        "machine": machine(),
                    }
                )
    if world.rank == 0 and options.json:
        write_merged(options.json, results, ("model", "ratio", "hosts", "rate"))
    hvd.shutdown()


if __name__ == "__main__":
    main()
