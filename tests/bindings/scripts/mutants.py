"""Faulty distributed optimizers, which the generator must detect."""

from __future__ import annotations

import torch
from plain_hvd import PlainOptimizer


class SkipsOne(PlainOptimizer):
    """An optimizer that does not average the last parameter."""

    def parameters(self) -> list[torch.Tensor]:
        return super().parameters()[:-1]


class Watching(PlainOptimizer):
    """An optimizer that observes each gradient when backward has computed it."""

    def begin(self) -> None:
        self.early: dict[torch.Tensor, torch.Tensor] = {}
        for p in self.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self.watch)

    def watch(self, p: torch.Tensor) -> None:
        assert p.grad is not None
        self.early[p] = p.grad.detach().clone()

    def synchronize(self) -> None:
        self.early = {}
        super().synchronize()


class ReducesBeforeClipping(Watching):
    """An optimizer that reduces gradients as of the end of backward, without later changes."""

    def synchronize(self) -> None:
        for p, gradient in self.early.items():
            if p.grad is not None:
                p.grad = gradient
        super().synchronize()


class DropsTheLast(Watching):
    """An optimizer that drops the contribution of a second backward pass."""

    def watch(self, p: torch.Tensor) -> None:
        if p in self.early:
            p.grad = self.early[p].clone()
        super().watch(p)


MUTANTS: dict[str, type[PlainOptimizer]] = {
    one.__name__: one for one in (SkipsOne, ReducesBeforeClipping, DropsTheLast)
}
