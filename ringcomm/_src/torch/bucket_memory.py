"""Memory for buckets of gradients: where it is, when its contents are ready, and when the result is.

Buckets use it in the same way on the host (`BucketMemory`) and a device (`bucket_device_memory`).
"""

from __future__ import annotations

import torch

from ringcomm._src.arrays import shared
from ringcomm._src.core import _core
from ringcomm._src.training.plans import StepPlan


class BucketMemory:
    """Memory of a bucket on the host, in this rank's arena if there is one. Writes complete when they return."""

    on_device = False

    def __init__(self, node: _core.Node | None) -> None:
        self._node = node

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns ``count`` zeros."""
        return allocate_flat(count, dtype, self._node)

    def forget(self, flat: torch.Tensor) -> None:
        """Releases a tensor of `allocate` that the bucket no longer uses."""

    def bring(self, gradient: torch.Tensor, view: torch.Tensor) -> None:
        """Copies a gradient into the bucket, at the latest when that is sent or `settle` called."""
        view.copy_(gradient)

    def settle(self) -> None:
        """Completes pending copies for the work that follows on the current stream."""

    def begin(self) -> None:
        """Begins a step."""

    def written(self) -> None:
        """Records that the calling thread has written a gradient."""

    def ready(self, plan: StepPlan, bucket: int) -> None:
        """Marks the bucket as complete, so that the core may reduce it."""
        plan.ready(bucket)

    def join(self) -> None:
        """Orders the work that follows after the bucket's result. The step has finished."""


def allocate_flat(count: int, dtype: torch.dtype, node: _core.Node | None = None) -> torch.Tensor:
    """Returns ``count`` zeros for a bucket, in this rank's arena if there is one."""
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    memory = shared.flat(node, count * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).zero_()
