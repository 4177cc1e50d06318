"""Where gradients that travel together lie.

Gradients of one dtype lie one behind the other in a *bucket*: one flat tensor that is reduced as a whole. Which ones,
and in which order, `ringcomm.plans.assign` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ringcomm import _core, shared
from ringcomm.plans import FlatBuffer
from ringcomm.torch.tensors import DTYPES

ALIGNMENT = 64  # bytes: a slice starts on a cache line of its own


def allocate_flat(count: int, dtype: torch.dtype, node: _core.Node | None = None) -> torch.Tensor:
    """Memory of a bucket: ``count`` zeros, in this rank's arena if there is one."""
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    memory = shared.flat(node, count * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).zero_()


def dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The parameter's strides if its elements fill one block of memory (as channels_last), else contiguous ones."""
    expected = 1
    for stride, extent in sorted((s, n) for s, n in zip(parameter.stride(), parameter.shape, strict=True) if n > 1):
        if stride != expected:
            expected = 0
            break
        expected *= extent
    if expected == max(parameter.numel(), 1):
        return parameter.stride()
    return torch.empty(parameter.shape, dtype=parameter.dtype, device="meta").stride()


class Slice:
    """A parameter's part of a bucket. ``view`` has the parameter's shape and strides and lies there."""

    def __init__(self, flat: torch.Tensor, offset: int, parameter: torch.Tensor, bucket: int) -> None:
        self.bucket = bucket
        self._flat, self._offset = flat, offset
        self._shape, self._strides = parameter.shape, dense_strides(parameter)
        self.address = flat.data_ptr() + offset * flat.element_size()
        self.view = self._make_view()

    def _make_view(self) -> torch.Tensor:
        # By storage and not by as_strided: no shared version counter, and not a "view" that autograd refuses to
        # detach in place.
        view = torch.empty(0, dtype=self._flat.dtype)
        return view.set_(self._flat.untyped_storage(), self._offset, self._shape, self._strides)

    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        """Brings the gradient here, unless it lies here already, and returns the view to use as ``.grad``."""
        if self.view.data_ptr() != self.address or self.view.shape != self._shape:  # a script has pointed it elsewhere
            self.view = self._make_view()
        if gradient is not self.view and (gradient.data_ptr() != self.address or gradient.stride() != self._strides):
            self.view.copy_(gradient)
        return self.view

    def clear(self) -> None:
        """This rank has no gradient: zeros."""
        if self.view.data_ptr() != self.address or self.view.shape != self._shape:
            self.view = self._make_view()
        self.view.zero_()


@dataclass
class Bucket:
    """One flat tensor, and which items lie in it."""

    flat: torch.Tensor
    items: list[int]

    def for_plan(self) -> FlatBuffer:
        return FlatBuffer(DTYPES[self.flat.dtype], self.flat.numel(), self.flat.data_ptr())


def lay_out(
    assignment: Sequence[Sequence[int]], parameters: Sequence[torch.Tensor], node: _core.Node | None = None
) -> tuple[list[Bucket], dict[int, Slice]]:
    """Allocates the buckets (in the arena of ``node``), and a slice for each item in them."""
    buckets: list[Bucket] = []
    slices: dict[int, Slice] = {}
    for items in assignment:
        dtype = parameters[items[0]].dtype
        step = max(1, ALIGNMENT // parameters[items[0]].element_size())
        offsets, count = [], 0
        for item in items:
            offsets.append(count)
            count += -(-parameters[item].numel() // step) * step
        flat = allocate_flat(count, dtype, node)
        for item, offset in zip(items, offsets, strict=True):
            slices[item] = Slice(flat, offset, parameters[item], len(buckets))
        buckets.append(Bucket(flat, list(items)))
    return buckets, slices
