"""Models of benchmarks/training.py: what people train, small enough for one core per rank.

A `Task` makes a model, this rank's batches and the optimizer. Weights are equal on all ranks,
batches are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Batch = tuple[torch.Tensor, ...]


class Block(nn.Module):
    """A transformer block with causal attention, after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    """A decoder of 17 million parameters: 6 blocks of width 384, 8192 tokens."""

    def __init__(self, tokens: int = 8192, width: int = 384, blocks: int = 6, length: int = 64) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 6) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(self.tokens(tokens) + positions)))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """ResNet's basic block: two 3x3 convolutions beside a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def resnet18(first: int = 64) -> nn.Sequential:
    """Returns ResNet-18 for images of 32x32: 11 million parameters (He et al. 2016).

    `first`: channels of the first layers.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, first, 3, 1, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU()]
    channels = first
    for out, stride in ((first, 1), (2 * first, 2), (4 * first, 2), (8 * first, 2)):
        layers += [Residual(channels, out, stride), Residual(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class Recommender(nn.Module):
    """Sparse embedding tables beside a dense tower, as in DLRM (Naumov et al. 2019)."""

    def __init__(self, tables: int = 8, rows: int = 100_000, width: int = 32, dense: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear((tables + 1) * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        parts = [table(one) for table, one in zip(self.tables, ids, strict=True)]
        return self.top(torch.cat([self.bottom(dense), *parts], dim=1)).squeeze(1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Task:
    """A training job of the benchmark."""

    model: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]  # inputs, then the target
    loss: Callable[..., torch.Tensor]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]


def integers(high: int, *shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(high, shape, generator=generator)


def popular(rows: int, *shape: int, generator: torch.Generator) -> torch.Tensor:
    """Returns row numbers of which few are frequent, as users' clicks are: log-uniform."""
    return (rows ** torch.rand(shape, generator=generator)).long().clamp_(max=rows) - 1


def text(g: torch.Generator) -> Batch:
    tokens = integers(8192, 4, 65, generator=g)
    return tokens[:, :-1], tokens[:, 1:]


TASKS = {
    "mlp": Task(
        lambda: nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU()))),
        lambda g: (torch.randn(32, 2048, generator=g), torch.zeros(32, 2048)),
        F.mse_loss,
        lambda model: torch.optim.SGD(model.parameters(), lr=1e-3),
    ),
    "deep": Task(
        lambda: nn.Sequential(*(layer for _ in range(100) for layer in (nn.Linear(32, 32), nn.ReLU()))),
        lambda g: (torch.randn(8, 32, generator=g), torch.zeros(8, 32)),
        F.mse_loss,
        lambda model: torch.optim.SGD(model.parameters(), lr=1e-3),
    ),
    "gpt": Task(
        GPT,
        text,
        lambda logits, target: F.cross_entropy(logits.flatten(0, 1), target.flatten()),
        lambda model: torch.optim.AdamW(model.parameters(), lr=3e-4),
    ),
    "resnet": Task(
        resnet18,
        lambda g: (torch.randn(16, 3, 32, 32, generator=g), integers(10, 16, generator=g)),
        F.cross_entropy,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
    ),
    "recommender": Task(
        Recommender,
        lambda g: (
            torch.randn(256, 16, generator=g),
            popular(100_000, 8, 256, 4, generator=g),
            torch.rand(256, generator=g).round(),
        ),
        F.binary_cross_entropy_with_logits,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.01),
    ),
}


def batches(task: Task, rank: int, count: int = 4) -> list[Batch]:
    generator = torch.Generator().manual_seed(10 + rank)
    return [task.batch(generator) for _ in range(count)]


def step_of(task: Task, model: nn.Module, optimizer: Any, rank: int) -> Callable[[], float]:
    """Returns a function that trains one step and returns the loss."""
    data, number = batches(task, rank), 0

    def step() -> float:
        nonlocal number
        *inputs, target = data[number % len(data)]
        number += 1
        optimizer.zero_grad()
        loss = task.loss(model(*inputs), target)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
