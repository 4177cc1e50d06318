"""Nested values as a small stream and big parts, which are copied once, from where they lie to where they are kept."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

try:
    import cloudpickle

    _Base: Any = cloudpickle.Pickler  # takes lambdas and local classes too
except ImportError:
    _Base = pickle.Pickler

SMALL = 1024  # bytes: what is not bigger travels in the stream

_reducers: list[tuple[type, Callable[[Any], Any]]] = []


def register(kind: type, reduce: Callable[[Any], Any]) -> None:
    """How to pickle this type's instances, as ``__reduce_ex__(5)`` does: with pickle.PickleBuffer for big memory."""
    _reducers.append((kind, reduce))


class _Packer(_Base):
    def reducer_override(self, obj: Any) -> Any:
        for kind, reduce in _reducers:
            if isinstance(obj, kind):
                return reduce(obj)
        override = getattr(super(), "reducer_override", None)
        return override(obj) if override is not None else NotImplemented


def pack(value: Any) -> tuple[bytes, list[memoryview]]:
    """The stream, and views of the parts: of the arrays themselves, so they change with these."""
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
    """Arrays lie in `parts`, which must be memory of their own, and writable."""
    return pickle.loads(stream, buffers=parts)


# ---- arrays of dtypes that NumPy does not have itself, as bfloat16: it would copy them into the stream ---------------
def take_apart(array: np.ndarray[Any, Any]) -> tuple[pickle.PickleBuffer, np.dtype[Any], tuple[int, ...]]:
    """The arguments of `put_together`, for what a reducer returns."""
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return pickle.PickleBuffer(flat), array.dtype, array.shape


def put_together(memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """In that memory."""
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
