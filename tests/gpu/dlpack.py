"""DLPack capsules, field by field (dlpack.h, ABI 0.8), for memory that no library has allocated."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

CUDA, EXTENSION = 2, 12  # kDLCUDA, kDLExtDev: torch's PrivateUse1 device
CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_numbers = itertools.count(1)
_held: dict[int, Any] = {}  # tensors that a consumer has not released yet


@ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
def _delete(managed: Any) -> None:
    _held.pop(managed.contents.context, None)


def capsule(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: str, kind: int, device: int, owner: Any = None
) -> Any:
    """Returns a "dltensor"; strides in elements, NumPy's dtype; the consumer keeps owner."""
    name = dtype.rstrip("0123456789")
    bits = int(dtype[len(name) :] or 8)
    many = ctypes.c_int64 * len(shape)
    tensor = _Tensor(address, kind, device, len(shape), CODES[name], bits, 1, many(*shape), many(*strides), 0)
    number = next(_numbers)
    managed = _Managed(tensor, number, ctypes.cast(_delete, ctypes.c_void_p))
    _held[number] = managed, owner
    return _new(ctypes.addressof(managed), b"dltensor", None)
