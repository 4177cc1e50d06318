"""Measures steps per second of two processes on one model's shared weights.

It compares them with two independent processes, with synchronous training, and with
torch.multiprocessing's Hogwild.

    python benchmarks/hogwild.py --json results/hogwild.json

A small CNN on random 16 x 16 images, batches of 16, SGD. The four take turns, each as a job of two
processes with one thread each; the result is the sum of both processes' steps.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jobs import launcher_of
from measure import machine, ratio, write
from torch import nn

KINDS = ("nothing shared", "hogwild", "hogwild locked", "synchronous", "torch.multiprocessing")


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32 * 36, 128), nn.ReLU(), nn.Linear(128, 10))


def train(net: nn.Module, optimizer: Any, seconds: float) -> float:
    """Returns steps per second."""
    torch.set_num_threads(1)
    x, y = torch.randn(16, 1, 16, 16), torch.randint(10, (16,))
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        steps += 1
    return steps / (time.perf_counter() - begun)


def worker(kind: str, seconds: float, output: str) -> None:
    import ringcomm.torch as hvd

    hvd.init()
    net = network()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=1e-4)
    if kind.startswith("hogwild"):
        optimizer = hvd.Hogwild(optimizer, update="locked" if "locked" in kind else "racy")
    elif kind == "synchronous":
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    hvd.barrier()
    if kind == "synchronous":  # equally many steps on each rank
        train_together(hvd, net, optimizer, seconds, output)
        return
    rate = hvd.allreduce(torch.tensor(train(net, optimizer, seconds)), op=hvd.Sum, name="rate")
    if kind.startswith("hogwild"):
        optimizer.finish()
    if hvd.rank() == 0:
        Path(output).write_text(str(float(rate)))
    hvd.shutdown()


def train_together(hvd: Any, net: nn.Module, optimizer: Any, seconds: float, output: str) -> None:
    train_steps = 0
    torch.set_num_threads(1)
    x, y = torch.randn(16, 1, 16, 16), torch.randint(10, (16,))
    begun = time.perf_counter()
    while True:
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        train_steps += 20
        left = hvd.allreduce(torch.tensor(seconds - (time.perf_counter() - begun)), op=hvd.Min, name="left")
        if left.item() < 0:
            break
    if hvd.rank() == 0:
        Path(output).write_text(str(hvd.size() * train_steps / (time.perf_counter() - begun)))
    hvd.shutdown()


def share(net: nn.Module, seconds: float, rates: Any, number: int, gate: Any) -> None:
    gate.wait()
    rates[number] = train(net, torch.optim.SGD(net.parameters(), lr=1e-4), seconds)


def of_torch(seconds: float, output: str) -> None:
    context = torch.multiprocessing.get_context("spawn")
    net = network().share_memory()
    rates, gate = context.Array("d", 2), context.Barrier(2)
    ranks = [context.Process(target=share, args=(net, seconds, rates, number, gate)) for number in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    Path(output).write_text(str(sum(rates)))


def run(options: argparse.Namespace, kind: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "rate")
        own = [options.python, __file__, "--kind", kind, "--seconds", str(options.seconds), "--output", output]
        launch = [] if kind == "torch.multiprocessing" else [launcher_of(options.python), "-n", "2"]
        subprocess.run([*launch, *own], check=True, timeout=300)
        return float(Path(output).read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind == "torch.multiprocessing":
        of_torch(options.seconds, options.output)
        return
    if options.kind:
        worker(options.kind, options.seconds, options.output)
        return
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.turns):
        for kind in KINDS:
            rates[kind].append(run(options, kind))
    for kind, found in rates.items():
        beside = "{:.2f} [{:.2f}, {:.2f}]".format(*ratio(found, rates["nothing shared"]))
        print(f"{kind:22} {sorted(found)[len(found) // 2]:8.1f} steps/s, {beside} of two that share nothing")
    if options.json:
        write(options.json, {"machine": machine(), "seconds": options.seconds, "rates": rates})


if __name__ == "__main__":
    main()
