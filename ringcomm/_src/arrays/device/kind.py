"""The kind of arrays in the memory of GPUs: CuPy arrays, and arrays with ``__cuda_array_interface__`` or DLPack.

The interface is version 3 of Numba's specification. Torch tensors have their own kind.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ringcomm._src.arrays import buffers, numpy_kind
from ringcomm._src.arrays.buffers import Buffer, Shape
from ringcomm._src.arrays.device import array, devices, dlpack
from ringcomm._src.arrays.device.location import MemoryLocation
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.core import _core

_IMMUTABLE = ("jax", "jaxlib", "tensorflow")  # libraries with immutable GPU arrays that are not marked read-only


class DeviceKind:
    @staticmethod
    def source(x: Any) -> Buffer:
        return _source(_view(x), x)

    @staticmethod
    def target(x: Any) -> Buffer:
        view = _view(x)
        if view.read_only or type(x).__module__.partition(".")[0] in _IMMUTABLE:
            raise ValueError("the array to write is read-only")
        if view.contiguous:
            return _buffer(view, x)
        _require_apart(view)
        return _copied(view, x)._replace(given=x, copied=True)

    @staticmethod
    def describe(made: Any) -> Buffer:
        buffer = _buffer(_view(made), made)
        if isinstance(made, array.DeviceArray) and buffer.place is not None:  # new memory: no stream has work on it
            return buffer._replace(place=buffer.place._replace(stream=None))
        return buffer

    @staticmethod
    def of_numpy(values: np.ndarray[Any, Any]) -> Any:
        return values

    @staticmethod
    def like(x: Any) -> None:
        return None

    @staticmethod
    def empty(like: Any, shape: Shape) -> Any:
        view = _view(like)
        _place(view, like).refuse_capture("a call's result")  # capture forbids allocation too
        return array.empty(shape, view.dtype, _device_of(view, like), _stream_of(like))

    @staticmethod
    def adopt(like: Any, shape: Shape, address: int, nbytes: int, owner: object) -> Any:
        made = DeviceKind.empty(like, shape)
        if nbytes > 0:
            buffer = DeviceKind.describe(made)
            assert buffer.place is not None
            buffer.place.write(buffer.address, address, nbytes)
        return made

    @staticmethod
    def to_host(x: Any) -> np.ndarray[Any, Any]:
        """Returns a copy in the host's memory; the host waits for it."""
        view = _view(x)
        buffer, host = _source(view, x), np.empty(view.shape, view.dtype)
        assert buffer.place is not None
        buffer.place.read(buffer.address, host.ctypes.data, host.nbytes)
        return host

    @staticmethod
    def assign(target: Any, source: Any) -> None:
        view, made = _view(target), _view(source)
        place = _place(view, target)
        place.arrange(view, _place(made, source), made)
        if place.waits:
            _core.device_copy(place.device, 0, 0, 0, place.now(), True)


def _view(x: Any) -> dlpack.View:
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is None:
        return dlpack.view(x)
    if interface.get("mask") is not None:
        raise UnsupportedError("masked arrays cannot be sent")
    dtype, shape = _dtype(interface, x), tuple(interface["shape"])
    address, read_only = interface["data"]
    strides = tuple(interface.get("strides") or dlpack.packed_strides(shape, dtype.itemsize))
    return dlpack.View(address, shape, dtype, strides, bool(read_only), interface.get("stream"), x)


def _dtype(interface: dict[str, Any], x: Any) -> np.dtype[Any]:
    """Returns the dtype of an array.

    The interface describes dtypes without a NumPy type code (bfloat16, pairs) as bytes; the array's `dtype` is exact.
    """
    dtype = np.dtype(interface["typestr"])
    if dtype.kind != "V":
        return dtype
    try:
        told: np.dtype[Any] = np.dtype(getattr(x, "dtype", None) or interface["descr"])
    except (KeyError, TypeError):
        return dtype
    return told if told.itemsize == dtype.itemsize else dtype


def _source(view: dlpack.View, x: Any) -> Buffer:
    return _buffer(view, x) if view.contiguous else _copied(view, x)


def _copied(view: dlpack.View, x: Any) -> Buffer:
    """Returns the buffer of a C-contiguous copy, made in stream order after the pending work on the array.

    The copy has the array's stream, so waiting for the array waits for the copy too.
    """
    numpy_kind.dtype_index(view.dtype)  # raises before anything is copied
    place = _place(view, x)
    place.refuse_capture("an array that is not C-contiguous")
    made = array.empty(view.shape, view.dtype, place.device, _stream_of(x))
    copy = _view(made)
    its = _place(copy, made)
    its.arrange(copy, place, view)
    return _buffer(copy, made)._replace(place=its._replace(now=place.now, waits=place.waits))


def _require_apart(view: dlpack.View) -> None:
    reach = view.dtype.itemsize
    for step, length in sorted((abs(step), length) for step, length in zip(view.strides, view.shape, strict=True)):
        if length > 1 and step < reach:
            raise ValueError("elements of the array to write lie over each other")
        reach += step * (length - 1)


def _place(view: dlpack.View, given: Any) -> MemoryLocation:
    return MemoryLocation(_device_of(view, given), view.stream, lambda: _stream_of(given), not _tells_stream(given))


def _buffer(view: dlpack.View, given: Any) -> Buffer:
    count = math.prod(view.shape)
    index = numpy_kind.dtype_index(view.dtype)
    place = _place(view, given)
    if index == buffers.MOVES_ONLY:
        width = view.dtype.itemsize
        shown = Buffer(
            view.address, count * width, buffers.BYTES, width, view.shape, given, DeviceKind, str(view.dtype)
        )
    else:
        shown = Buffer(view.address, count, index, 1, view.shape, given, DeviceKind, _core.DTYPES[index])
    return shown._replace(given=given, place=place, keeps=view.owner)


def _device_of(view: dlpack.View, x: Any) -> int:
    """Returns the ordinal of the array's GPU; for an array without elements, its `device` or this rank's GPU."""
    if math.prod(view.shape) > 0:
        return devices.holds(view.address)
    device = getattr(x, "device", None)
    device = getattr(device, "id", device)  # CuPy's `device` is an object with an `id`
    return device if isinstance(device, int) else devices.of_this_rank()


def _tells_stream(x: Any) -> bool:
    """Returns True if the array names its stream. DLPack producers do not: they make the consumer's stream wait."""
    return (getattr(x, "__cuda_array_interface__", None) or {}).get("stream") is not None


def _stream_of(x: Any) -> int:
    """Returns the stream that the array's library uses now; the default stream if it names none."""
    interface = getattr(x, "__cuda_array_interface__", None)
    stream = None if interface is None else interface.get("stream")
    return devices.LEGACY if stream is None else int(stream)


def on_device(x: Any) -> bool:
    """Returns True if `x` is an array of a GPU."""
    return hasattr(x, "__cuda_array_interface__") or dlpack.on_device(x)
