"""Faulty distributed optimizers, which the generator has to find."""

from __future__ import annotations

import torch
from plain_hvd import PlainOptimizer


class SkipsOne(PlainOptimizer):
    """Does not average the last parameter."""

    def parameters(self) -> list[torch.Tensor]:
        return super().parameters()[:-1]


class Watching(PlainOptimizer):
    """Sees each gradient when backward has made it."""

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
    """Reduces gradients as they were when backward ended, and not as the script has changed them since."""

    def synchronize(self) -> None:
        for p, gradient in self.early.items():
            if p.grad is not None:
                p.grad = gradient
        super().synchronize()


class DropsTheLast(Watching):
    """Leaves out what a second backward pass has added."""

    def watch(self, p: torch.Tensor) -> None:
        if p in self.early:
            p.grad = self.early[p].clone()
        super().watch(p)


MUTANTS: dict[str, type[PlainOptimizer]] = {
    one.__name__: one for one in (SkipsOne, ReducesBeforeClipping, DropsTheLast)
}
