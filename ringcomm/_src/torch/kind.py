"""torch tensors as arrays of the core.

`ringcomm/_src/arrays/arrays.py` imports this module when it meets the first tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ringcomm._src.arrays import arrays, buffers
from ringcomm._src.arrays.buffers import Buffer, Shape
from ringcomm._src.arrays.device import devices
from ringcomm._src.arrays.device.location import MemoryLocation
from ringcomm._src.arrays.numpy_kind import CoreMemory
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.core import _core

DEVICES = {"cuda"}  # device types with memory that CUDA's driver can access

_dtypes: dict[torch.dtype, tuple[int, int, str]] = {}


def _dtype(dtype: torch.dtype) -> tuple[int, int, str]:
    """Returns (core dtype index, core elements per element, name)."""
    known = _dtypes.get(dtype)
    if known is None:
        name = str(dtype).removeprefix("torch.")
        reducible = name in _core.DTYPES
        known = (_core.DTYPES.index(name), 1, name) if reducible else (buffers.BYTES, dtype.itemsize, name)
        _dtypes[dtype] = known
    return known


def _buffer(tensor: torch.Tensor, given: Any = None, copied: bool = False) -> Buffer:
    index, width, name = _dtype(tensor.dtype)
    count = tensor.numel()
    location = None if tensor.is_cpu else location_of(tensor.device)
    shape = tuple(tensor.shape)
    return Buffer(
        tensor.data_ptr(), count * width, index, width, shape, tensor, TorchKind, name, given, copied, location
    )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cpu and tensor.device.type not in DEVICES:
        raise UnsupportedError(
            f"the tensor is on {tensor.device}; ringcomm supports CPU and CUDA memory: pass tensor.cpu()"
        )
    if tensor.is_sparse or tensor.is_quantized:
        raise UnsupportedError("sparse and quantised tensors cannot be sent; pass a dense one")
    return tensor.detach()


def device_module(device: torch.device) -> Any:
    """Returns torch.cuda for a CUDA device, as torch.get_device_module does from torch 2.4 on."""
    return getattr(torch, device.type)


def location_of(device: torch.device) -> MemoryLocation:
    """Returns the device's memory location, ordered by torch's current stream there."""
    module = device_module(device)
    devices.count()
    index = module.current_device() if device.index is None else device.index

    def now() -> int:
        return int(module.current_stream(index).cuda_stream)

    return MemoryLocation(index, now(), now)


def used_here(tensor: torch.Tensor) -> None:
    """Keeps the tensor's memory allocated until the current stream of its device has used it."""
    if not tensor.is_cpu:
        tensor.record_stream(device_module(tensor.device).current_stream(tensor.device))


class TorchKind:
    @staticmethod
    def source(x: Any) -> Buffer:
        return _buffer(_dense(x).resolve_conj().resolve_neg().contiguous())

    @staticmethod
    def target(x: Any) -> Buffer:
        tensor = _dense(x)
        if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
            return _buffer(tensor, x)
        return _buffer(tensor.resolve_conj().resolve_neg().contiguous(), x, True)

    @staticmethod
    def describe(array: Any) -> Buffer:
        return _buffer(array)

    @staticmethod
    def of_numpy(array: np.ndarray[Any, Any]) -> Any:
        return torch.from_numpy(array)

    @staticmethod
    def like(x: Any) -> _core.ArrayKey | None:
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.dtype.is_complex:  # may be conjugated lazily
            return None
        if hasattr(x, "__dlpack_c_exchange_api__"):  # from torch 2.10 on; three times as fast
            if not x.is_cpu or x.layout != torch.strided:
                return None
            try:
                found: _core.ArrayKey = _core.DlpackKey(x, ("is_neg",))
            except BufferError:
                return None
        else:
            same = {"dtype": x.dtype, "layout": torch.strided, "is_cpu": True}
            found = _core.ArrayKey(type(x), same, {"shape": x.shape}, ("is_contiguous",), ("is_neg",), "data_ptr")
        return found if found.address_if_match(x) != -1 else None

    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        if nbytes == 0:
            return TorchKind.empty(like, shape)
        made = torch.from_numpy(np.asarray(CoreMemory(address, nbytes, owner))).view(like.dtype).reshape(shape)
        if like.is_cpu:
            return made
        return made.pin_memory().to(like.device, non_blocking=True)  # with unpinned memory the host would wait

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        target.detach().copy_(source)
        used_here(source)  # the source was allocated on the stream that was current when the call began


arrays.register_kind(lambda cls: issubclass(cls, torch.Tensor), TorchKind)
