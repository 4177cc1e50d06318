"""The kind of GPU arrays: CuPy's, and those with ``__cuda_array_interface__`` or DLPack.

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
            raise ValueError("the output array is read-only")
        if view.contiguous:
            return _buffer(view, x)
        _require_no_overlap(view)
        return _contiguous_copy(view, x)._replace(given=x, copied=True)

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
        _location(view, like).refuse_capture("allocation of a result")  # not allowed during capture
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
        location = _location(view, target)
        location.arrange(view, _location(made, source), made)
        if location.host_waits:
            _core.device_copy(location.device, 0, 0, 0, location.current_stream(), True)


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

    The interface describes dtypes without a NumPy type code (bfloat16, pairs) as bytes; the array's
    `dtype` is exact.
    """
    dtype = np.dtype(interface["typestr"])
    if dtype.kind != "V":
        return dtype
    try:
        exact_dtype: np.dtype[Any] = np.dtype(getattr(x, "dtype", None) or interface["descr"])
    except (KeyError, TypeError):
        return dtype
    return exact_dtype if exact_dtype.itemsize == dtype.itemsize else dtype


def _source(view: dlpack.View, x: Any) -> Buffer:
    return _buffer(view, x) if view.contiguous else _contiguous_copy(view, x)


def _contiguous_copy(view: dlpack.View, x: Any) -> Buffer:
    """Returns the buffer of a C-contiguous copy, made after the pending work on the array.

    The copy has the array's stream, so waiting for the array waits for the copy too.
    """
    numpy_kind.dtype_index(view.dtype)  # raises before anything is copied
    location = _location(view, x)
    location.refuse_capture("copy of an array that is not C-contiguous")
    made = array.empty(view.shape, view.dtype, location.device, _stream_of(x))
    copy = _view(made)
    copy_location = _location(copy, made)
    copy_location.arrange(copy, location, view)
    return _buffer(copy, made)._replace(
        place=copy_location._replace(current_stream=location.current_stream, host_waits=location.host_waits)
    )


def _require_no_overlap(view: dlpack.View) -> None:
    end = view.dtype.itemsize
    for step, length in sorted((abs(step), length) for step, length in zip(view.strides, view.shape, strict=True)):
        if length > 1 and step < end:
            raise ValueError("elements of the output array overlap in memory")
        end += step * (length - 1)


def _location(view: dlpack.View, given: Any) -> MemoryLocation:
    return MemoryLocation(_device_of(view, given), view.stream, lambda: _stream_of(given), not _names_stream(given))


def _buffer(view: dlpack.View, given: Any) -> Buffer:
    count = math.prod(view.shape)
    index = numpy_kind.dtype_index(view.dtype)
    location = _location(view, given)
    if index == buffers.MOVES_ONLY:
        width = view.dtype.itemsize
        buffer = Buffer(
            view.address, count * width, buffers.BYTES, width, view.shape, given, DeviceKind, str(view.dtype)
        )
    else:
        buffer = Buffer(view.address, count, index, 1, view.shape, given, DeviceKind, _core.DTYPES[index])
    return buffer._replace(given=given, place=location, keeps=view.owner)


def _device_of(view: dlpack.View, x: Any) -> int:
    """Returns the ordinal of the array's GPU. An empty array: its `device`, or this rank's GPU."""
    if math.prod(view.shape) > 0:
        return devices.device_of_address(view.address)
    device = getattr(x, "device", None)
    device = getattr(device, "id", device)  # CuPy's `device` is an object with an `id`
    return device if isinstance(device, int) else devices.of_this_rank()


def _names_stream(x: Any) -> bool:
    """Returns True if the array names its stream. DLPack arrays name none."""
    return (getattr(x, "__cuda_array_interface__", None) or {}).get("stream") is not None


def _stream_of(x: Any) -> int:
    """Returns the stream that the array's library uses now; the default stream if it names none."""
    interface = getattr(x, "__cuda_array_interface__", None)
    stream = None if interface is None else interface.get("stream")
    return devices.LEGACY if stream is None else int(stream)


def on_device(x: Any) -> bool:
    """Returns True if `x` is an array of a GPU."""
    return hasattr(x, "__cuda_array_interface__") or dlpack.on_device(x)
