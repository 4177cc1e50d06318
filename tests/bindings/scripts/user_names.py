"""Names of drawn scripts besides `hvd`: small networks, ranks' data, and values to compare.

A drawn script runs alone too: PYTHONPATH=tests/bindings/scripts mpiexec -n 2 python script.py
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from script_parts import Watched
from torch import nn
from torch.utils.checkpoint import checkpoint


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def wide() -> nn.Module:
    """Returns a network with weights above 64 KiB: gradients stay in autograd's memory."""
    return nn.Sequential(nn.Linear(5, 1800), nn.Tanh(), nn.Linear(1800, 2)).double()


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Linear(5, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2)
    ).double()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.last.bias = nn.Parameter(torch.zeros(2))
        self.again = self.middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.again(torch.tanh(self.middle(torch.tanh(self.first(x)))))))


class Checkpointed(Tied):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        for _ in range(2):
            x = torch.tanh(checkpoint(self.middle, x, use_reentrant=self.reentrant))
        return self.last(x)


class Heads(nn.Module):
    """A network with several heads.

    Each forward pass uses one, a different one on each rank; the last head is unused.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.first, self.heads = nn.Linear(5, 4), nn.ModuleList(nn.Linear(4, 2) for _ in range(4))
        self.turn = rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn += 1
        return self.heads[self.turn % 3](torch.tanh(self.first(x)))


class Words(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(7, 3, sparse=sparse), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.words((x.abs() * 3).long() % 7).mean(1))


def synced(hvd: Any) -> nn.Module:
    """Returns a network with batch normalisation over the rows of all ranks."""
    return nn.Sequential(nn.Linear(5, 6, bias=False), hvd.SyncBatchNorm(6), nn.Tanh(), nn.Linear(6, 2)).double()


class Doubled:
    """A user's compressor. It is lossless."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        return tensor * 2, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: None) -> torch.Tensor:
        return tensor / 2


class Odd(nn.Module):
    """A network with parameters of unusual shapes, strides and dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.empty = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.zeros(0, 3))
        self.turned = nn.Parameter(torch.randn(2, 5).t())
        self.gaps = nn.Parameter(torch.randn(5, 4)[:, ::2])
        self.complex = nn.Parameter(torch.randn(2, dtype=torch.complex64))
        self.single = nn.Parameter(torch.randn(2, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = (self.complex * self.complex.conj()).real + self.single + self.empty.sum()
        return torch.tanh(x @ (self.turned + self.gaps)) * self.scale + bias


def sgd(net: nn.Module, **named: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, **named)


def grads(net: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in net.parameters() if p.grad is not None]


def trained(net: nn.Module) -> list[nn.Parameter]:
    return [p for p in net.parameters() if p.requires_grad]


def scale(p: torch.Tensor, factor: float) -> None:
    assert p.grad is not None
    p.grad.mul_(factor)


def clip(net: nn.Module) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)


def halve(p: torch.Tensor) -> None:
    scale(p, 0.5)


class User(Watched):
    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a new batch of this rank. Ranks have different numbers of rows."""
        self.batches += 1
        rng = torch.Generator().manual_seed(100 * self.batches + self.hvd.rank())
        rows = 3 + self.hvd.rank()
        return (
            torch.randn(rows, 5, generator=rng, dtype=torch.float64),
            torch.randn(rows, 2, generator=rng, dtype=torch.float64),
        )

    def loss(self, net: nn.Module) -> torch.Tensor:
        x, y = self.batch()
        dtype = next(net.parameters()).dtype
        return ((net(x.to(dtype)) - y) ** 2).mean()

    def see(self, *nets: nn.Module) -> None:
        for number, net in enumerate(nets):
            for name, p in net.named_parameters():
                self.note(f"net{number}.{name}", p)
                self.note(f"net{number}.{name}.grad", p.grad)
            for name, one in net.named_buffers():
                self.note(f"net{number}.{name}", one)

    def note(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = (value.to_dense() if value.is_sparse else value).detach().resolve_conj().numpy()
        super().note(name, value)

    def side_by_side(self, *jobs: Callable[[], None]) -> None:
        """Runs jobs in threads, in another order on each rank; the reference runs in sequence."""
        if self.plain:
            for job in jobs:
                job()
            return
        errors: list[BaseException] = []

        def run(job: Callable[[], None]) -> None:
            try:
                job()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
        for thread in threads[:: -1 if self.hvd.rank() else 1]:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def wrap(self, inner: torch.optim.Optimizer, net: nn.Module, passes: int) -> Any:
        """Wraps an optimizer in the usual way."""
        named = net.named_parameters()
        return self.hvd.DistributedOptimizer(inner, named_parameters=named, backward_passes_per_step=passes)

    def names(self) -> dict[str, Any]:
        def heads() -> nn.Module:
            return Heads(self.hvd.rank()).double()

        kinds: dict[str, Any] = {
            "mlp": mlp,
            "wide": wide,
            "normed": normed,
            "tied": lambda: Tied().double(),
            "heads": heads,
            "checkpointed": lambda reentrant: Checkpointed(reentrant).double(),
            "words": lambda sparse: Words(sparse).double(),
            "odd": Odd,
            "synced": lambda: synced(self.hvd),
            "Doubled": Doubled,
        }
        torch.manual_seed(7)
        return {
            **kinds,
            "hvd": self.hvd,
            "rank": self.hvd.rank(),
            "size": self.hvd.size(),
            "batch": self.batch,
            "loss": self.loss,
            "see": self.see,
            "note": self.note,
            "side_by_side": self.side_by_side,
            "wrap": self.wrap,
            "grads": grads,
            "trained": trained,
            "halve": halve,
            "clip": clip,
            "grow": lambda p: scale(p, 0.5 + self.hvd.rank()),
            "sgd": sgd,
            "kept": [],
            "torch": torch,
            "nn": nn,
            "np": np,
            "copy": copy,
            "pickle": pickle,
            "io": io,
            "contextlib": contextlib,
            "threading": threading,
            "checkpoint": checkpoint,
        }
