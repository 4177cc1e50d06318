"""Reads address, shape and strides of arrays that support only DLPack 0.8 (``__dlpack__``)."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.arrays.device import devices
from ringcomm._src.base.errors import UnsupportedError

CUDA, MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c"}
_BFLOAT_CODE, _BOOL_CODE = 4, 6


class View(NamedTuple):
    """Address and layout of an array."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]  # bytes
    read_only: bool
    stream: int | None  # stream with pending work on the array; None: no pending work
    owner: object  # keeps the memory alive

    @property
    def contiguous(self) -> bool:
        """True if the array is C-contiguous; a dimension of one element may have any stride."""
        packed = packed_strides(self.shape, self.dtype.itemsize)
        steps = zip(self.shape, self.strides, packed, strict=True)
        return 0 in self.shape or all(length == 1 or step == expected for length, step, expected in steps)


def packed_strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Returns the strides, in bytes, of a C-contiguous array."""
    return tuple(item * math.prod(shape[i + 1 :]) for i in range(len(shape)))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def on_device(x: Any) -> bool:
    return hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] in (CUDA, MANAGED)


def view(x: Any) -> View:
    """Returns the view of an array.

    The array's producer makes the default stream wait until the data is ready. The capsule is never
    consumed. It releases the array when the view is deleted.
    """
    if not on_device(x):
        kind = x.__dlpack_device__()[0]
        raise UnsupportedError(f"the array is on a device of DLPack type {kind}; ringcomm supports CPU and CUDA memory")
    capsule = x.__dlpack__(stream=devices.LEGACY)
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    dtype, address = _dtype(tensor), (tensor.data or 0) + tensor.byte_offset
    strides = packed_strides(shape, dtype.itemsize)
    if tensor.strides:
        strides = tuple(step * dtype.itemsize for step in tensor.strides[: tensor.ndim])
    return View(address, shape, dtype, strides, False, devices.LEGACY, capsule)


def _dtype(tensor: _Tensor) -> np.dtype[Any]:
    if tensor.lanes == 1 and tensor.code == _BOOL_CODE and tensor.bits == 8:
        return np.dtype(bool)
    if tensor.lanes == 1 and tensor.code == _BFLOAT_CODE and tensor.bits == 16:
        try:
            import ml_dtypes
        except ImportError:
            raise UnsupportedError("bfloat16 outside of torch needs ml_dtypes: pip install ml_dtypes") from None
        return np.dtype(ml_dtypes.bfloat16)
    kind = _KINDS.get(tensor.code)
    if tensor.lanes != 1 or kind is None or tensor.bits % 8:
        raise UnsupportedError(
            f"cannot send elements of DLPack type {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        )
    return np.dtype(f"{kind}{tensor.bits // 8}")
