"""Memory for buckets of gradients on a GPU, the counterpart of `bucket_memory` for the host.

Kernels and copies of backward are asynchronous. `DeviceMemory` makes the reduction of a bucket wait
for them, and makes readers of the result wait for the reduction.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ringcomm._src.core import _core
from ringcomm._src.torch.bucket_memory import BucketMemory
from ringcomm._src.torch.kind import device_module, location_of, used_here
from ringcomm._src.torch.tensors import DTYPES
from ringcomm._src.training.plans import StepPlan


@functools.cache
def _packing_stream(device: torch.device) -> Any:
    """Returns the stream on which gradients are copied into buckets, concurrently with backward."""
    return device_module(device).Stream(device)


class DeviceMemory(BucketMemory):
    """Memory of a bucket on a device.

    Autograd may write gradients on several streams. `end_hook` records each of them, and the
    reduction waits for all. One kernel copies all gradients of a bucket, on a separate stream.
    """

    on_device = True

    def __init__(self, device: torch.device) -> None:
        self._device, self._creation_stream = device, location_of(device).current_stream()
        self._flats: list[torch.Tensor] = []
        self._streams: set[int] = set()  # CUDA stream handles used in this step
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []  # gradients to copy, and their targets
        self._order: _core.DeviceOrder | None = None

    def allocate(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        self._flats.append(torch.zeros(count, dtype=dtype, device=self._device))
        return self._flats[-1]

    def release(self, flat: torch.Tensor) -> None:
        self._flats = [kept for kept in self._flats if kept is not flat]

    def copy_in(self, gradient: torch.Tensor, view: torch.Tensor) -> None:
        gradient = gradient.resolve_conj().resolve_neg()
        if (gradient.dtype, gradient.stride()) == (view.dtype, view.stride()):
            self._copies.append((gradient, view))
        else:
            view.copy_(gradient)
            used_here(gradient)  # autograd may have allocated the gradient on another stream

    def complete_copies(self) -> None:
        if self._copies:
            self._record_stream()
            self._pack().hold(location_of(self._device).current_stream())

    def _pack(self) -> _core.DeviceOrder:
        """Starts the pending copies. Returns a stream order after these copies and earlier writes."""
        device = location_of(self._device).device
        order = _core.DeviceOrder(device, sorted(self._streams))
        if not self._copies:
            return order
        side = _packing_stream(self._device)
        order.hold(side.cuda_stream)
        _core.device_pack(
            *(device, [gradient.data_ptr() for gradient, _ in self._copies]),
            *([view.data_ptr() for _, view in self._copies], [view.numel() for _, view in self._copies]),
            *(DTYPES[self._copies[0][1].dtype], side.cuda_stream),
        )
        for gradient, _ in self._copies:
            gradient.record_stream(side)
        self._copies.clear()
        return _core.DeviceOrder(device, [side.cuda_stream])

    def begin(self) -> None:
        location_of(self._device).refuse_capture()
        self._streams.clear()
        self._copies.clear()

    def end_hook(self) -> None:
        self._record_stream()

    def _record_stream(self) -> None:
        self._streams.add(location_of(self._device).current_stream())

    def ready(self, plan: StepPlan, bucket: int) -> None:
        self._record_stream()
        self._order = self._pack()
        plan.ready_at(bucket, self._order)

    def join(self) -> None:
        assert self._order is not None
        now = location_of(self._device).current_stream()
        self._order.join(now)
        self._order = None
        if now != self._creation_stream:
            for flat in self._flats:
                used_here(flat)


def memory_on(device: torch.device, node: _core.Node | None) -> BucketMemory:
    """Returns memory for a bucket of gradients on this device."""
    return BucketMemory(node) if device.type == "cpu" else DeviceMemory(device)
