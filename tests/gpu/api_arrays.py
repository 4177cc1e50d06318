"""Arrays for the cases of tests/gpu/test_api.py, on a stand-in GPU whose streams lag.

A case gets a :class:`Here` and raises if something is wrong. Arrays are made on streams whose
operations are delayed randomly: a call that does not wait for its streams reads wrong values.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import device_array as da
import numpy as np
from standin_path import ON_DEVICE

import ringcomm

CASES: list[Callable[[Here], None]] = []
LIBRARY = os.environ.get("RINGCOMM_CUDA_LIBRARY", "")


class Described:
    """An array that publishes its memory location by one interface only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def get(self) -> Any:
        return self.array.get()


class ByInterface(Described):
    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


class ByDLPack(Described):
    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def ours(values: np.ndarray) -> Any:
    return ringcomm.DeviceArray(values.shape, values.dtype, da._here.device).set(values)


def late(values: np.ndarray) -> Any:
    """Returns an array that the current stream writes after a delay; until then it is 0xFF."""
    made = da.empty(values.shape, values.dtype)
    da.fill_bytes(made, 0xFF)
    assign_late(made, values)
    return made


def assign_late(array: Any, values: np.ndarray) -> None:
    """Assigns after work on the current stream; the host does not wait."""
    given = da.from_numpy(values)
    da.synchronize()
    for _ in range(3):
        da.fill_bytes(array, 0xFF)
    if given.nbytes:
        copy = ctypes.c_uint64(array.address), ctypes.c_uint64(given.address), ctypes.c_size_t(given.nbytes)
        da._driver("cuMemcpyAsync", *copy, ctypes.c_void_p(da.current_stream()))


KINDS = {"cupy": late, "interface": lambda v: ByInterface(late(v)), "dlpack": lambda v: ByDLPack(late(v)), "ours": ours}


@dataclass
class Here:
    comm: Any
    library: Any  # the driver, or the stand-in for it

    @property
    def rank(self) -> int:
        return int(self.comm.rank)

    @property
    def size(self) -> int:
        return int(self.comm.size)


@contextlib.contextmanager
def capturing(library: Any) -> Iterator[None]:
    """Captures the current stream into a CUDA graph."""
    stream, graph = ctypes.c_void_p(da.current_stream()), ctypes.c_void_p()
    if ON_DEVICE:
        assert library.cuStreamBeginCapture_v2(stream, 0) == 0
    else:
        library.standin_capture(stream, 1)
    try:
        yield
    finally:
        if ON_DEVICE:
            assert library.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
        else:
            library.standin_capture(stream, 0)


def case(function: Callable[[Here], None]) -> Callable[[Here], None]:
    CASES.append(function)
    return function


def raises(error: type[BaseException], text: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(f"no {error.__name__} with {text!r}")


def check(got: Any, expected: Any) -> None:
    host = got.get() if hasattr(got, "get") else got
    assert host.shape == np.shape(expected) and (host == expected).all(), (host, expected)
