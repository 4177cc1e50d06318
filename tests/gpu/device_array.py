"""Arrays on the driver, like CuPy's without arithmetic: slices, streams, interfaces.

    device_array.use(path_of_libcuda)
    with device_array.stream(device_array.new_stream()):
        x = device_array.from_numpy(numpy_array)      # the copy is in the order of the current stream
        x[2:4].get()

Freed memory is allocated again first on its stream, as in CuPy's pool, and filled with 0xFF in that
stream's order.
"""

from __future__ import annotations

import collections
import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dlpack
import numpy as np
from driver_calls import Driver


class _Thread(threading.local):
    stream = 0
    device = 0


_here = _Thread()
_driver: Any = None
_free: dict[tuple[int, int, int], list[int]] = collections.defaultdict(list)  # keyed by device, stream, bytes


def use(path: str) -> None:
    """Sets the driver of this process's arrays."""
    global _driver
    _driver = _driver or Driver(path, lambda: _here.device)


def current_stream() -> int:
    """Returns this thread's current stream: a driver handle; 0 is the default stream."""
    return _here.stream


def new_stream() -> int:
    made = ctypes.c_void_p()
    _driver("cuStreamCreate", ctypes.byref(made), 1)
    return made.value or 0


@contextmanager
def stream(handle: int) -> Iterator[int]:
    before, _here.stream = _here.stream, handle
    try:
        yield handle
    finally:
        _here.stream = before


@contextmanager
def device(number: int) -> Iterator[None]:
    before, _here.device = _here.device, number
    try:
        yield
    finally:
        _here.device = before


def synchronize(handle: int | None = None) -> None:
    _driver("cuStreamSynchronize", ctypes.c_void_p(_here.stream if handle is None else handle))


def wait(waiting: int, other: int, device: int | None = None) -> None:
    """Orders later work on the first stream after the present work of the other stream."""
    event = ctypes.c_void_p()
    _driver("cuEventCreate", ctypes.byref(event), 2, device=device)
    _driver("cuEventRecord", event, ctypes.c_void_p(other), device=device)
    _driver("cuStreamWaitEvent", ctypes.c_void_p(waiting), event, 0, device=device)
    _driver("cuEventDestroy_v2", event, device=device)


def copy(to: DeviceArray, array: DeviceArray) -> None:
    """Copies a contiguous array, in the order of the current stream."""
    how = ctypes.c_uint64(to.address), ctypes.c_uint64(array.address), ctypes.c_size_t(array.nbytes)
    _driver("cuMemcpyDtoDAsync_v2", *how, ctypes.c_void_p(_here.stream), device=array.device)


def fill_bytes(array: DeviceArray, byte: int) -> None:
    """Sets every byte of a contiguous array, in the order of the current stream."""
    _set_bytes(array.address, array.nbytes, byte, _here.stream, array.device)


def _set_bytes(address: int, nbytes: int, byte: int, stream: int, device: int) -> None:
    how = ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream)
    _driver("cuMemsetD8Async", *how, device=device)


class _Memory:
    def __init__(self, nbytes: int) -> None:
        self.device, self.stream, self.nbytes = _here.device, _here.stream, max(nbytes, 1)
        if free := _free[self.device, self.stream, self.nbytes]:
            self.address = free.pop()
            return
        made = ctypes.c_uint64()
        _driver("cuMemAlloc_v2", ctypes.byref(made), ctypes.c_size_t(self.nbytes))
        self.address = made.value

    def __del__(self) -> None:
        if getattr(self, "address", 0) and not sys.is_finalizing():
            _set_bytes(self.address, self.nbytes, 0xFF, self.stream, self.device)
            _free[self.device, self.stream, self.nbytes].append(self.address)


class DeviceArray:
    """An array of the device. `_view` is a NumPy array at its address, which is never read."""

    def __init__(self, view: np.ndarray, memory: _Memory) -> None:
        self._view, self._memory = view, memory
        self.shape, self.dtype, self.strides = view.shape, view.dtype, view.strides
        self.size, self.nbytes, self.ndim, self.itemsize = view.size, view.nbytes, view.ndim, view.itemsize
        self.c_contiguous = bool(view.flags.c_contiguous)
        self.address = view.__array_interface__["data"][0]
        self.device = memory.device

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, index: Any) -> DeviceArray:
        many = index if isinstance(index, tuple) else (index,)
        return DeviceArray(self._view[many if Ellipsis in many else (*many, ...)], self._memory)

    def reshape(self, *shape: int) -> DeviceArray:
        return DeviceArray(self._view.reshape(shape, copy=False), self._memory)

    @property
    def T(self) -> DeviceArray:
        return DeviceArray(self._view.T, self._memory)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": [("", self.dtype.str)],
            "data": (self.address, False),
            "strides": None if self.c_contiguous else self.strides,
            "version": 3,
            "stream": _here.stream or 1,  # the interface forbids 0; 1 is the default stream
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """Makes the consumer's stream wait: None and 1 are the default stream, -1: no order."""
        theirs = 0 if stream in (None, 1) else stream
        if theirs not in (-1, _here.stream):
            wait(theirs, _here.stream, self.device)
        strides = [step // self.itemsize for step in self.strides]
        return dlpack.capsule(
            self.address, self.shape, strides, self.dtype.name, dlpack.CUDA, self.device, self._memory
        )

    def get(self) -> np.ndarray:
        """Returns a NumPy copy, made in the order of the current stream; the host waits."""
        low, high = np.lib.array_utils.byte_bounds(self._view)
        raw = np.empty(high - low, np.uint8)
        if raw.size:
            copy = ctypes.c_void_p(raw.ctypes.data), ctypes.c_uint64(low), ctypes.c_size_t(raw.nbytes)
            _driver("cuMemcpyDtoHAsync_v2", *copy, ctypes.c_void_p(_here.stream), device=self.device)
            _driver("cuStreamSynchronize", ctypes.c_void_p(_here.stream), device=self.device)
        return np.ndarray(self.shape, self.dtype, raw, self.address - low, self.strides).copy()


def empty(shape: int | tuple[int, ...], dtype: Any = np.float32) -> DeviceArray:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    memory = _Memory(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
    described = {"shape": (memory.nbytes,), "typestr": "|u1", "data": (memory.address, False), "version": 3}
    raw = np.asarray(type("Address", (), {"__array_interface__": described})())
    return DeviceArray(np.ndarray(shape, dtype, raw), memory)


def from_numpy(array: np.ndarray, stream: int | None = None) -> DeviceArray:
    """Returns a copy on the current device, in the order of the given or current stream."""
    host = np.ascontiguousarray(array)
    made = empty(array.shape, array.dtype)
    if host.nbytes:
        copy = ctypes.c_uint64(made.address), ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(host.nbytes)
        _driver("cuMemcpyHtoDAsync_v2", *copy, ctypes.c_void_p(_here.stream if stream is None else stream))
    return made
