"""The default kind: NumPy arrays and objects that NumPy can view; device.kind has GPU arrays."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ringcomm._src.arrays.buffers import BYTES, MOVES_ONLY, Buffer, Shape
from ringcomm._src.core import _core

_dtypes: dict[np.dtype[Any], int] = {}


def dtype_index(dtype: np.dtype[Any]) -> int:
    """Returns the core's index of a dtype.

    If ringcomm can move the dtype but not reduce it, returns MOVES_ONLY. Raises TypeError for a
    dtype that cannot be sent: Python objects, foreign byte order, elements of 0 bytes.
    """
    index = _dtypes.get(dtype)
    if index is None:
        if not dtype.isnative:
            raise TypeError(
                f"ringcomm needs native byte order, not {dtype.str}; convert with x.astype(x.dtype.newbyteorder('='))"
            )
        if dtype.hasobject:
            raise TypeError("arrays of Python objects cannot be sent; ringcomm moves plain memory")
        if dtype.itemsize == 0:
            raise TypeError(f"elements of dtype {dtype!r} have 0 bytes, so there is nothing to send")
        name = _pair_name(dtype) if dtype.names else dtype.name
        index = _core.DTYPES.index(name) if name in _core.DTYPES else MOVES_ONLY
        _dtypes[dtype] = index
    return index


def _pair_name(dtype: np.dtype[Any]) -> str:
    """Returns the core's name of a pair of numbers with C's struct layout; "": another layout."""
    fields = list((dtype.fields or {}).values())  # dtype, offset
    c_layout = np.dtype([(str(i), field[0]) for i, field in enumerate(fields)], align=True)
    offsets = [field[1] for field in (c_layout.fields or {}).values()]
    has_c_layout = dtype.itemsize == c_layout.itemsize and offsets == [field[1] for field in fields]
    return f"({', '.join(field[0].name for field in fields)})" if has_c_layout else ""


class CoreMemory:
    """Memory of the core that NumPy views without a copy; it keeps `owner` alive."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False)}


class NumPyKind:
    """The :class:`Kind` of NumPy arrays.

    Examples
    --------
    >>> from ringcomm import bindings
    >>> bindings.NumPyKind.source(np.zeros((2, 3))).count
    6
    """

    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        return np.empty(shape, like.dtype)

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        if nbytes == 0:
            return np.empty(shape, like.dtype)
        return np.asarray(CoreMemory(address, nbytes, owner)).view(like.dtype).reshape(shape)

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        target[...] = source

    @staticmethod
    def source(x: Any) -> Buffer:
        if is_device_array(x):
            return device_kind().source(x)
        array = x if isinstance(x, np.ndarray) else _as_numpy(x)
        dtype_index(array.dtype)  # raises before anything is copied
        return _buffer_of(array if array.flags.c_contiguous else array.copy(order="C"))

    @staticmethod
    def target(x: Any) -> Buffer:
        if not isinstance(x, np.ndarray) and isinstance(x, list | tuple | int | float | complex | bool | bytes | str):
            raise TypeError(f"a {type(x).__name__} cannot be written in place; pass an array")
        if is_device_array(x):
            return device_kind().target(x)
        array = x if isinstance(x, np.ndarray) else _as_numpy(x)
        if not array.flags.writeable:
            raise ValueError("the output array is read-only")
        return _buffer_of(array, x) if array.flags.c_contiguous else _buffer_of(array.copy(order="C"), array, True)

    @staticmethod
    def describe(array: Any) -> Buffer:
        return _buffer_of(array)

    @staticmethod
    def of_numpy(array: np.ndarray[Any, Any]) -> Any:
        return array

    @staticmethod
    def like(x: Any) -> _core.ArrayKey | None:
        return _core.ndarray_key(x)


def _buffer_of(array: np.ndarray[Any, Any], given: Any = None, copied: bool = False) -> Buffer:
    dtype = array.dtype
    index = dtype_index(dtype)
    address = _core.array_memory(array)
    if index != MOVES_ONLY:
        return Buffer(address, array.size, index, 1, array.shape, array, NumPyKind, _core.DTYPES[index], given, copied)
    return Buffer(
        address, array.nbytes, BYTES, dtype.itemsize, array.shape, array, NumPyKind, str(dtype), given, copied
    )


def is_device_array(x: Any) -> bool:
    """Returns True if `x` is an array in the memory of a device."""
    return not isinstance(x, np.ndarray) and (
        hasattr(x, "__cuda_array_interface__")
        or (hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] not in (1, 3))  # kDLCPU and kDLCUDAHost
    )


def device_kind() -> Any:
    """Returns DeviceKind; its module is imported when the first array of a device is used."""
    return importlib.import_module("ringcomm._src.arrays.device.kind").DeviceKind


def _as_numpy(x: Any) -> np.ndarray[Any, Any]:
    """Converts an object to a NumPy array, without a copy if its protocol allows that."""
    if isinstance(x, bytes | bytearray):
        return np.frombuffer(x, np.uint8)
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    return np.asarray(x)
