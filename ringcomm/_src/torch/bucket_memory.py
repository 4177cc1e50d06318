"""Where the memory of a bucket of gradients lies, when what is in it is ready, and when the result is there: all that
tells a bucket on a device from one in the host's memory."""

from __future__ import annotations

import torch

from ringcomm._src.arrays import shared
from ringcomm._src.core import _core
from ringcomm._src.training.plans import StepPlan


class BucketMemory:
    """The host's: in this rank's arena if there is one. What a hook writes is there when it has been written."""

    on_device = False

    def __init__(self, node: _core.Node | None) -> None:
        self._node = node

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """``count`` zeros."""
        return allocate_flat(count, dtype, self._node)

    def forget(self, flat: torch.Tensor) -> None:
        """The bucket uses what `allocate` gave no more."""

    def bring(self, gradient: torch.Tensor, view: torch.Tensor) -> None:
        """Has a gradient in its part of the bucket by the time that this travels, and by `settle`."""
        view.copy_(gradient)

    def settle(self) -> None:
        """What has been brought is there, for what comes next here."""

    def begin(self) -> None:
        """A step."""

    def written(self) -> None:
        """A gradient has been, as far as this thread knows."""

    def ready(self, plan: StepPlan, bucket: int) -> None:
        """All of them have been, and it may travel."""
        plan.ready(bucket)

    def join(self) -> None:
        """The step is done: what comes next here comes behind its result."""


def allocate_flat(count: int, dtype: torch.dtype, node: _core.Node | None = None) -> torch.Tensor:
    """Memory of a bucket: ``count`` zeros, in this rank's arena if there is one."""
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    memory = shared.flat(node, count * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).zero_()
