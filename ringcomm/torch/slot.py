"""A parameter as the gradient reducer sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ringcomm.torch.buckets import Slice
from ringcomm.torch.firing import GradientWatch


class Slot:
    """One parameter: where its gradient goes, and how far it is in this step."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.hooks: list[Any] = []
        self.passes = 0  # backward passes that gave a gradient since the last reduction
        self.fired = -1  # place in the order of first gradients of this step; -1 none yet
        self.late = False  # its gradient comes in parts: sent by synchronize() only, from now on
        self.final = False  # handed over in this step
        self.split = False  # it had been handed over when more of it came: `.grad` is what came since
        self.sparse_dim = 0  # of the sparse gradients it has had; 0: none so far
        self.watch = GradientWatch()
        # By the plan: a place in a bucket, or None for what travels by name.
        self.place: Slice | None = None
        self.collect: Callable[[], torch.Tensor] | None = None

    def gradient(self) -> torch.Tensor | None:
        gradient = self.parameter.grad
        if gradient is not None and gradient.is_sparse:
            self.sparse_dim = gradient.sparse_dim()
        return gradient

    def count_pass(self, gradient: torch.Tensor) -> bool:
        """A backward pass has given it a gradient. False if what had come before was cleared, and does not count."""
        added = self.passes == 0 or self.watch.only_added_to(gradient)
        self.passes = self.passes + 1 if added else 1
        self.watch.look(gradient)
        return added

    def store(self) -> bool:
        """Brings the gradient, or zeros if there is none, into the bucket. True if there is one."""
        assert self.place is not None
        gradient = self.gradient()
        if gradient is None:
            self.place.clear()
            return False
        if gradient.is_sparse:  # dense in the bucket; turned back by deliver()
            self.place.take(gradient.to_dense())
            return True
        view = self.place.take(gradient)
        if gradient is not view:
            self.parameter.grad = view
        return True

    def deliver(self, sparse: bool) -> None:
        """The reduced gradient becomes ``.grad``; ``sparse``: some rank's was."""
        assert self.place is not None
        view = self.place.view
        if sparse:
            self.parameter.grad = view.to_sparse(self.sparse_dim or 1)
        elif self.parameter.grad is not view:
            self.parameter.grad = view

    def add(self, rest: torch.Tensor) -> None:
        """To the reduced gradient."""
        first = self.parameter.grad
        if first is not None and first.is_sparse and not rest.is_sparse:
            rest = rest.to_sparse(first.sparse_dim())
        self.parameter.grad = rest if first is None else first + rest

    def leave_bucket(self) -> None:
        """Moves the gradient out of its bucket, which is about to be written to."""
        gradient = self.parameter.grad
        if self.place is not None and gradient is self.place.view:
            self.parameter.grad = gradient.clone()

    def restart(self) -> None:
        """A new step begins."""
        self.passes, self.fired, self.final, self.split, self.collect = 0, -1, False, False, None
        self.watch.forget()
