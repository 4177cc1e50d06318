"""Memory for buckets of gradients, and the order of writes, reductions and reads of it.

`BucketMemory` is host memory. `bucket_device_memory` has the same interface for a device.
"""

from __future__ import annotations

import torch

from ringcomm._src.arrays import shared
from ringcomm._src.core import _core
from ringcomm._src.training.plans import StepPlan


class BucketMemory:
    """Host memory of a bucket, in this rank's arena if there is one. Writes are synchronous."""

    on_device = False

    def __init__(self, node: _core.Node | None) -> None:
        self._node = node

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns ``count`` zeros."""
        return allocate_flat(count, dtype, self._node)

    def release(self, flat: torch.Tensor) -> None:
        """Releases a tensor of `allocate` that the bucket no longer uses."""

    def copy_in(self, gradient: torch.Tensor, view: torch.Tensor) -> None:
        """Copies a gradient into the bucket, immediately or in `complete_copies` or `ready`."""
        view.copy_(gradient)

    def complete_copies(self) -> None:
        """Orders later work on the current stream after the pending copies."""

    def begin(self) -> None:
        """Begins a step."""

    def record_write(self) -> None:
        """Records that the calling thread has written a gradient."""

    def ready(self, plan: StepPlan, bucket: int) -> None:
        """Marks the bucket as complete, so that the core may reduce it."""
        plan.ready(bucket)

    def join(self) -> None:
        """Orders later work on the current stream after the reduction, at the end of a step."""


def allocate_flat(count: int, dtype: torch.dtype, node: _core.Node | None = None) -> torch.Tensor:
    """Returns ``count`` zeros for a bucket, in this rank's arena if there is one."""
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    memory = shared.empty_bytes(node, count * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).zero_()
