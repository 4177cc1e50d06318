"""Memory for buckets of gradients on a GPU, the counterpart of `bucket_memory` for the host.

Kernels and copies of backward are asynchronous. `DeviceMemory` orders a bucket's reduction after
them, and the reading of its result after the reduction.
"""

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
    """Returns the stream on which gradients are copied into buckets, concurrently with backward."""
    return device_module(device).Stream(device)


class DeviceMemory(BucketMemory):
    """Memory of a bucket on a device.

    Data is complete in the order of the streams that autograd used, which may be several. One
    kernel copies all gradients of a bucket, on a separate stream.
    """

    on_device = True

    def __init__(self, device: torch.device) -> None:
        self._device, self._made_on = device, place_of(device).now()
        self._flats: list[torch.Tensor] = []
        self._streams: set[int] = set()  # CUDA stream handles used in this step
        self._brought: list[tuple[torch.Tensor, torch.Tensor]] = []  # gradients to copy, and their targets
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
        """Copies the pending gradients. Returns an order after that copy and after all earlier writes."""
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
    """Returns memory for a bucket of gradients on this device."""
    return BucketMemory(node) if device.type == "cpu" else DeviceMemory(device)
