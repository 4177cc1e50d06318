"""Serialises nested values as a small stream and large parts, with one copy of each part.

The parts are views of the arrays, so commits copy them directly into the buffer of the host.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

try:
    import cloudpickle

    _Base: Any = cloudpickle.Pickler  # also pickles lambdas and local classes
except ImportError:
    _Base = pickle.Pickler

SMALL = 1024  # bytes; parts up to this size are stored in the stream

_reducers: list[tuple[type, Callable[[Any], Any]]] = []


def register(kind: type, reduce: Callable[[Any], Any]) -> None:
    """Registers how to pickle this type's instances: a function like ``__reduce_ex__(5)``.

    The function should wrap large memory in pickle.PickleBuffer.
    """
    _reducers.append((kind, reduce))


class _Packer(_Base):
    def reducer_override(self, obj: Any) -> Any:
        for kind, reduce in _reducers:
            if isinstance(obj, kind):
                return reduce(obj)
        override = getattr(super(), "reducer_override", None)
        return override(obj) if override is not None else NotImplemented


def pack(value: Any) -> tuple[bytes, list[memoryview]]:
    """Returns the stream, and views of the parts. The views show later changes of the arrays."""
    parts: list[memoryview] = []

    def out_of_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes <= SMALL:
            return True
        parts.append(view)
        return False

    stream = io.BytesIO()
    _Packer(stream, protocol=5, buffer_callback=out_of_band).dump(value)
    return stream.getvalue(), parts


def unpack(stream: bytes, parts: Sequence[Any]) -> Any:
    """Returns the value. Its arrays use `parts`, which must be writable and not used elsewhere."""
    return pickle.loads(stream, buffers=parts)


# ---- arrays of dtypes that NumPy does not define (bfloat16): NumPy would copy them into the stream ----
def array_to_parts(array: np.ndarray[Any, Any]) -> tuple[pickle.PickleBuffer, np.dtype[Any], tuple[int, ...]]:
    """Returns the arguments of `array_from_parts`, for a reducer's result."""
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return pickle.PickleBuffer(flat), array.dtype, array.shape


def array_from_parts(memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Returns an array that uses this memory."""
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
