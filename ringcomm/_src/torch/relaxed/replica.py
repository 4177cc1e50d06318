"""Torch tensors as a replica, which methods read into flat arrays and write back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ringcomm._src.decentralized.replicas import Flat, Replica


def _real(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _views(items: Sequence[torch.Tensor], parts: Sequence[Flat]) -> list[torch.Tensor]:
    return [torch.from_numpy(part).view(_real(item).shape) for item, part in zip(items, parts, strict=True)]


class TensorReplica(Replica[torch.Tensor]):
    """A replica of tensors of floating or complex dtypes, on any device."""

    @staticmethod
    def count(item: torch.Tensor) -> int:
        return item.numel() * (2 if item.is_complex() else 1)

    @staticmethod
    def is_double(item: torch.Tensor) -> bool:
        return item.dtype in (torch.float64, torch.complex128)

    @torch.no_grad()
    def copy_out(self, items: Sequence[torch.Tensor], parts: Sequence[Flat]) -> None:
        for view, item in zip(_views(items, parts), items, strict=True):
            view.copy_(_real(item))

    @torch.no_grad()
    def copy_in(self, items: Sequence[torch.Tensor], parts: Sequence[Flat]) -> None:
        for view, item in zip(_views(items, parts), items, strict=True):
            _real(item).copy_(view)

    @torch.no_grad()
    def read_gradients(self, flat: Flat) -> None:
        """Copies the gradients to `flat`, with zeros for missing ones. For one fragment of weights."""
        for item, part in zip(self.items(0), self._parts(0, flat), strict=True):
            if item.grad is None:
                part[:] = 0
            else:
                self.copy_out([item.grad.to_dense() if item.grad.is_sparse else item.grad], [part])

    def write_gradients(self, flat: Flat) -> None:
        """Sets the gradients from `flat`."""
        for item in self.items(0):
            item.grad = torch.empty_like(item)
        self.copy_in([item.grad for item in self.items(0) if item.grad is not None], self._parts(0, flat))

    @torch.no_grad()
    def add(self, change: Flat) -> None:
        """Adds a change to weights of one fragment, which other ranks may write concurrently."""
        items = self.items(0)
        for view, item in zip(_views(items, self._parts(0, change)), items, strict=True):
            _real(item).add_(view.to(_real(item).dtype))


class GradientReplica(TensorReplica):
    """The gradients of parameters, each with a flag that shows if this rank has the gradient.

    A missing gradient counts as zeros. A gradient that no rank has is None after the exchange. Both
    fragments contain all gradients and flags. Rounds use the fragments alternately, so that two
    rounds can be in flight.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(parameters)
        self._parameters = list(parameters)
        self.present = torch.zeros(len(parameters), dtype=torch.float64 if self.dtype.itemsize == 8 else torch.float32)
        self.fragments = [[*parameters, self.present]] * 2
        self.heads *= 2
        self.sizes = [self.heads[0] + len(parameters)] * 2

    def copy_out(self, items: Sequence[torch.Tensor], parts: Sequence[Flat]) -> None:
        self.present.copy_(torch.tensor([float(p.grad is not None) for p in self._parameters]))
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        dense = [gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients]
        super().copy_out([*dense, self.present], parts)

    def copy_in(self, items: Sequence[torch.Tensor], parts: Sequence[Flat]) -> None:
        self.present.copy_(torch.from_numpy(parts[-1]))
        for parameter, part, present in zip(self._parameters, parts[:-1], self.present.tolist(), strict=True):
            if present == 0:
                parameter.grad = None
            else:
                if parameter.grad is None or parameter.grad.is_sparse:
                    parameter.grad = torch.empty_like(parameter)
                super().copy_in([parameter.grad], [part])


def statistics_of(model: torch.nn.Module | None) -> list[torch.Tensor]:
    """Returns the floating-point buffers, each once: BatchNorm's running means and variances."""
    if model is None:
        return []
    return list(
        {id(buffer): buffer for buffer in model.buffers() if buffer.is_floating_point() or buffer.is_complex()}.values()
    )


def texts_of(names: Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """Returns descriptions of the parameters that must be equal on all ranks."""
    return [f"'{name}' {str(p.dtype).removeprefix('torch.')} {tuple(p.shape)}" for name, p in names]
