"""Memory for buckets of gradients, and the order of writes, reductions and reads of it.

`BucketMemory` is host memory. `bucket_device_memory` has the same interface for a device.
"""

from __future__ import annotations

import torch

from ringcomm._src.arrays import shared
from ringcomm._src.core import _core
from ringcomm._src.training.plans import StepPlan


class BucketMemory:
    """Host memory of a bucket, in this rank's arena if there is one."""

    on_device = False

    def __init__(self, node: _core.Node | None) -> None:
        self._node = node
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []  # gradients to copy, and their targets

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns ``count`` zeros."""
        return allocate_flat(count, dtype, self._node)

    def release(self, flat: torch.Tensor) -> None:
        """Releases a tensor of `allocate` that the bucket no longer uses."""

    def copy_in(self, gradient: torch.Tensor, view: torch.Tensor) -> None:
        """Copies a gradient into the bucket, in the next `complete_copies`, `end_hook` or `ready`."""
        self._copies.append((gradient, view))

    def complete_copies(self) -> None:
        """Completes the pending copies; on a device, before later work on the current stream."""
        if self._copies:  # a call for all of them takes half the time of a call for each
            gradients, views = zip(*self._copies, strict=True)
            torch._foreach_copy_(views, gradients)
            self._copies.clear()

    def begin(self) -> None:
        """Begins a step."""
        self._copies.clear()

    def end_hook(self) -> None:
        """Ends a hook that has stored a gradient."""
        self.complete_copies()

    def ready(self, plan: StepPlan, bucket: int) -> None:
        """Marks the bucket as complete, so that the core may reduce it."""
        self.complete_copies()
        plan.ready(bucket)

    def join(self) -> None:
        """Orders later work on the current stream after the reduction, at the end of a step."""


def allocate_flat(count: int, dtype: torch.dtype, node: _core.Node | None = None) -> torch.Tensor:
    """Returns ``count`` zeros for a bucket, in this rank's arena if there is one."""
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    memory = shared.empty_bytes(node, count * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).zero_()
