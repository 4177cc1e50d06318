"""Where the gradients of a bucket lie on a GPU."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ringcomm._src.core import _core
from ringcomm._src.torch.bucket_memory import BucketMemory
from ringcomm._src.torch.kind import device_module, place_of, used_here
from ringcomm._src.torch.tensors import DTYPES
from ringcomm._src.training.plans import StepPlan


@functools.cache
def _packing_stream(device: torch.device) -> Any:
    """On which gradients are copied into buckets, beside backward."""
    return device_module(device).Stream(device)


class DeviceMemory(BucketMemory):
    """A device's. What is written is there in the order of the streams that autograd used, which may be several. All
    gradients of a bucket are brought by one kernel, on a stream beside theirs."""

    on_device = True

    def __init__(self, device: torch.device) -> None:
        self._device, self._made_on = device, place_of(device).now()
        self._flats: list[torch.Tensor] = []
        self._streams: set[int] = set()  # the driver's handles, of this step
        self._brought: list[tuple[torch.Tensor, torch.Tensor]] = []  # gradients yet to be copied, and where to
        self._order: _core.DeviceOrder | None = None

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        self._flats.append(torch.zeros(count, dtype=dtype, device=self._device))
        return self._flats[-1]

    def forget(self, flat: torch.Tensor) -> None:
        self._flats = [one for one in self._flats if one is not flat]

    def bring(self, gradient: torch.Tensor, view: torch.Tensor) -> None:
        gradient = gradient.resolve_conj().resolve_neg()
        if (gradient.dtype, gradient.stride()) == (view.dtype, view.stride()):
            self._brought.append((gradient, view))
        else:
            view.copy_(gradient)
            used_here(gradient)  # autograd may have made it on another stream

    def settle(self) -> None:
        if self._brought:
            self.written()
            self._pack().hold(place_of(self._device).now())

    def _pack(self) -> _core.DeviceOrder:
        """Copies what has been brought; the order is behind that, and behind all that has been written."""
        device = place_of(self._device).device
        order = _core.DeviceOrder(device, sorted(self._streams))
        if not self._brought:
            return order
        side = _packing_stream(self._device)
        order.hold(side.cuda_stream)
        _core.device_pack(
            *(device, [gradient.data_ptr() for gradient, _ in self._brought]),
            *([view.data_ptr() for _, view in self._brought], [view.numel() for _, view in self._brought]),
            *(DTYPES[self._brought[0][1].dtype], side.cuda_stream),
        )
        for gradient, _ in self._brought:
            gradient.record_stream(side)
        self._brought.clear()
        return _core.DeviceOrder(device, [side.cuda_stream])

    def begin(self) -> None:
        place_of(self._device).refuse_capture()
        self._streams.clear()
        self._brought.clear()

    def written(self) -> None:
        self._streams.add(place_of(self._device).now())

    def ready(self, plan: StepPlan, bucket: int) -> None:
        self.written()
        self._order = self._pack()
        plan.ready_at(bucket, self._order)

    def join(self) -> None:
        assert self._order is not None
        now = place_of(self._device).now()
        self._order.join(now)
        self._order = None
        if now != self._made_on:
            for flat in self._flats:
                used_here(flat)


def memory_on(device: torch.device, node: _core.Node | None) -> BucketMemory:
    """For a bucket of gradients there."""
    return BucketMemory(node) if device.type == "cpu" else DeviceMemory(device)
