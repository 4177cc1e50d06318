"""Reference training steps, in processes that do not use ringcomm.

"alone" runs without communication; "kept" does too, but the C library keeps freed pages. "ddp" is
DistributedDataParallel with Gloo. benchmarks/training_step.py starts one process of each for every
rank. On standard input it requests a step, for which the process returns seconds, or a file of
gradients.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn

WIDTH, LAYERS, BATCH = 2048, 8, 32
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}  # variables of glibc


def make_model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


def make_data(rank: int) -> torch.Tensor:
    torch.manual_seed(10 + rank)
    return torch.randn(BATCH, WIDTH)


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, data: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step


class PlainSteps:
    """The process of one rank for one kind of step, as that rank uses it."""

    def __init__(self, kind: str, rank: int, size: int, exchange: Callable[[int], int]) -> None:
        """Starts the process. `exchange` returns rank 0's number on every rank."""
        line = [sys.executable, __file__, kind, str(rank), str(size)]
        environment = os.environ | (KEPT if kind == "kept" else {})
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=environment)
        self._ask(exchange(int(self._answer())))

    def seconds(self) -> float:
        """Returns the seconds of a step."""
        return float(self._ask("step"))

    def gradients(self, file: Path) -> list[torch.Tensor]:
        self._ask(file)
        return torch.load(file)  # type: ignore[no-any-return]

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, line: object) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of the plain steps has ended with {self._process.wait()}")
        return line.strip()


def answer(value: Any) -> None:
    print(value, flush=True)


def wrap(model: nn.Module, rank: int, size: int) -> nn.Module:
    """Wraps the model in DistributedDataParallel; the ranks connect to a port that rank 0 opens."""
    import torch.distributed as dist

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # otherwise it warns about hosts without names
    store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False) if rank == 0 else None
    answer(store.port if store else 0)
    port = int(sys.stdin.readline())
    store = store or dist.TCPStore("127.0.0.1", port, size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))
    return nn.parallel.DistributedDataParallel(model)


def main(kind: str, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    model: nn.Module = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if kind == "ddp":
        model = wrap(model, rank, size)
    else:
        answer(0)
        sys.stdin.readline()
    step = step_of(model, optimizer, make_data(rank))
    answer("ready")
    for line in sys.stdin:
        if line == "step\n":
            begin = time.perf_counter()
            step()
            answer(time.perf_counter() - begin)
        else:
            torch.save([parameter.grad for parameter in model.parameters()], line.strip())
            answer("saved")
    if kind == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
