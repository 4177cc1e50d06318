"""Where the memory of a bucket of gradients lies, when what is in it is ready, and when the result is there: all that
tells a bucket on a device from one in the host's memory."""

from __future__ import annotations

import torch

from ringcomm import _core, shared
from ringcomm.plans import StepPlan
from ringcomm.torch.kind import place_of, used_here


class BucketMemory:
    """The host's: in this rank's arena if there is one. What a hook writes is there when it has been written."""

    on_device = False

    def __init__(self, node: _core.Node | None) -> None:
        self._node = node

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """``count`` zeros."""
        return allocate_flat(count, dtype, self._node)

    def read(self, gradient: torch.Tensor) -> None:
        """It has been copied from, and may be dropped."""

    def begin(self) -> None:
        """A step."""

    def written(self) -> None:
        """A gradient has been, as far as this thread knows."""

    def ready(self, plan: StepPlan, bucket: int) -> None:
        """All of them have been, and it may travel."""
        plan.ready(bucket)

    def join(self) -> None:
        """The step is done: what comes next here comes behind its result."""


class DeviceMemory(BucketMemory):
    """A device's. What is written is there in the order of the streams that autograd used, which may be several."""

    on_device = True

    def __init__(self, device: torch.device) -> None:
        self._device, self._made_on = device, place_of(device).now()
        self._flats: list[torch.Tensor] = []
        self._streams: set[int] = set()  # the driver's handles, of this step
        self._order: _core.DeviceOrder | None = None

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        self._flats.append(torch.zeros(count, dtype=dtype, device=self._device))
        return self._flats[-1]

    def read(self, gradient: torch.Tensor) -> None:
        used_here(gradient)  # autograd may have made it on another stream

    def begin(self) -> None:
        place_of(self._device).refuse_capture()
        self._streams.clear()

    def written(self) -> None:
        self._streams.add(place_of(self._device).now())

    def ready(self, plan: StepPlan, bucket: int) -> None:
        self.written()
        self._order = _core.DeviceOrder(place_of(self._device).device, sorted(self._streams))
        plan.ready_at(bucket, self._order)

    def join(self) -> None:
        assert self._order is not None
        now = place_of(self._device).now()
        self._order.join(now)
        self._order = None
        if now != self._made_on:
            for flat in self._flats:
                used_here(flat)


def allocate_flat(count: int, dtype: torch.dtype, node: _core.Node | None = None) -> torch.Tensor:
    """Memory of a bucket: ``count`` zeros, in this rank's arena if there is one."""
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    memory = shared.flat(node, count * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).zero_()


def memory_on(device: torch.device, node: _core.Node | None) -> BucketMemory:
    """For a bucket of gradients there."""
    return BucketMemory(node) if device.type == "cpu" else DeviceMemory(device)
