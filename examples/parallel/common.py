"""Common parts of the recipes: model, data, reference training in one process, comparison."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringcomm.torch  # noqa: F401 (torch.distributed knows the backend from here on)

WIDTH, BATCH = int(os.environ.get("WIDTH", "32")), int(os.environ.get("BATCH", "24"))  # BATCH: samples of all ranks
STEPS, LR = 4, 0.1


def start() -> tuple[int, int]:
    """Starts the process group; returns rank and size, which are MPI's."""
    torch.set_num_threads(1)
    dist.init_process_group("ringcomm")
    return dist.get_rank(), dist.get_world_size()


def model() -> nn.Sequential:
    """Returns the model, with equal weights on each call."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(8)))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs and targets of all ranks."""
    drawn = torch.Generator().manual_seed(step + 1)
    x = torch.randn(BATCH, WIDTH, generator=drawn)
    return x, torch.roll(x, 1, 1).sin()


def share(whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """Returns a rank's part of a batch."""
    return whole.tensor_split(size)[rank]


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    part: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    draw: Callable[[int], tuple[torch.Tensor, torch.Tensor]] = batch,
) -> float:
    """Trains this process's part; returns its last loss."""
    for step in range(STEPS):
        x, y = map(part, draw(step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def alone(
    make: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    lr: float = LR,
    draw: Callable[[int], tuple[torch.Tensor, torch.Tensor]] = batch,
) -> nn.Sequential:
    """Returns a model trained by this process on complete batches."""
    net = model()
    train(net, make(net.parameters(), lr=lr), draw=draw)
    return net


def the_first(_step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns one batch per step, for libraries that distribute samples to ranks themselves."""
    return batch(0)


def loader(size: int) -> DataLoader:
    """Returns a loader of the samples of `the_first`, with a rank's batch size."""
    return DataLoader(TensorDataset(*batch(0)), BATCH // size)


def compare(
    got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], within: float = 1e-5, to: str = "one process"
) -> None:
    """Prints the largest difference to the reference; exits with status 1 if it is too large."""
    far = max((float((got[name] - expected[name]).abs().max()) for name in got), default=0.0)
    worst = torch.tensor([far])
    assert dist.get_backend() == "ringcomm"
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        told = "equal" if worst <= within else "NOT equal"
        print(
            f"{told} to {to} within {within:g} (largest difference {worst.item():.1e}) on {dist.get_world_size()} ranks"
        )
    dist.destroy_process_group()
    sys.exit(int(worst.item() > within))
