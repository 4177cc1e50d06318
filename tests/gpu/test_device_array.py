"""Tests the arrays that replace CuPy's: shapes, interfaces, order."""

from __future__ import annotations

import ctypes
from typing import Any

import device_array as da
import ml_dtypes
import numpy as np
import pytest
from standin_path import libcuda


@pytest.fixture(scope="module", autouse=True)
def driver() -> Any:
    da.use(libcuda())
    return ctypes.CDLL(libcuda())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, np.complex64, ml_dtypes.bfloat16])
def test_there_and_back(dtype: Any) -> None:
    host = np.arange(24).reshape(2, 3, 4).astype(dtype)
    x = da.from_numpy(host)
    assert (x.shape, x.dtype, x.nbytes, x.c_contiguous) == (host.shape, host.dtype, host.nbytes, True)
    assert (x.get() == host).all()
    for index in (1, (slice(None), 1), (..., slice(None, None, 2)), (slice(None), slice(2, 0, -1))):
        part, mine = host[index], x[index]
        assert (mine.shape, mine.strides, mine.c_contiguous) == (part.shape, part.strides, part.flags.c_contiguous)
        assert (mine.get() == part).all()
    assert (x.T.get() == host.T).all() and (x.reshape(6, 4).get() == host.reshape(6, 4)).all()
    assert da.empty((0, 3)).get().shape == (0, 3) and da.from_numpy(np.array(3.0)).get() == 3


def test_cuda_array_interface() -> None:
    x = da.from_numpy(np.zeros((4, 6), np.float32))
    described = x[1:, 2:].__cuda_array_interface__
    assert described["data"] == (x.address + 32, False) and described["strides"] == (24, 4)
    assert (described["shape"], described["typestr"], described["version"]) == ((3, 4), "<f4", 3)
    assert described["stream"] == 1 and x.__cuda_array_interface__["strides"] is None
    with da.stream(da.new_stream()) as side:
        assert x.__cuda_array_interface__["stream"] == side == da.current_stream()


def _keep_busy(driver: Any, stream: int) -> Any:
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: ctypes.CDLL(None).usleep(60_000) and None)
    assert driver.cuLaunchHostFunc(ctypes.c_void_p(stream), call, None) == 0
    return call


@pytest.mark.parametrize("asked", [None, -1])
def test_dlpack_makes_the_consumers_stream_wait_unless_told_not_to(driver: Any, asked: int | None) -> None:
    one, other = da.new_stream(), da.new_stream()
    with da.stream(one):
        x = da.empty(4, np.int32)
        da.synchronize()
        busy = _keep_busy(driver, one)
        da.fill_bytes(x, 7)
        capsule = x.__dlpack__(stream=asked or other)
    assert x.__dlpack_device__() == (2, 0)
    with da.stream(other):
        seen = x.get().view(np.uint8).tolist()
    assert (seen == [7] * 16) == (asked is None)
    da.synchronize(one)
    del capsule, busy


def test_freed_memory_is_used_again_on_its_stream() -> None:
    x = da.from_numpy(np.ones(100, np.float32))
    address = x.address
    del x
    again = da.empty(100)
    assert again.address == address and np.isnan(again.get()).all()
