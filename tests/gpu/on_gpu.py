"""The package's PTX on this machine's GPU: memory of GPU and host, launches of kernels."""

from __future__ import annotations

import ctypes
import functools
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import ringcomm

PINNED = 256 << 20
PTX = Path(ringcomm.__file__).parent / "_src" / "arrays" / "device"


class Gpu:
    """The first GPU's primary context, and pinned memory, which has equal addresses on both sides."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        context, address = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(PINNED), 3)  # portable, mapped
        self._memory = np.ctypeslib.as_array((ctypes.c_ubyte * PINNED).from_address(address.value or 0))
        self._next = 0
        self._functions: dict[str, ctypes.c_void_p] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._driver, name)(*arguments)
        assert not error, f"{name} failed with error {error}"

    def memory(self, nbytes: int) -> np.ndarray:
        """Returns bytes of pinned memory, reused in turn: an example needs only a part."""
        assert nbytes < PINNED // 8
        self._next = 0 if self._next + nbytes > PINNED else self._next
        begin, self._next = self._next, self._next + -(-nbytes // 64) * 64
        return self._memory[begin : begin + nbytes]

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            text = next(text for text in modules() if re.search(rf"\.entry {name}\b", text))
            module = ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), text.encode())
            for entry in re.findall(r"\.entry (\w+)", text):
                self._functions[entry] = ctypes.c_void_p()
                self._call("cuModuleGetFunction", ctypes.byref(self._functions[entry]), module, entry.encode())
        return self._functions[name]

    def launch(self, name: str, parameters: ctypes.Structure, blocks: int, threads: int) -> None:
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(parameters))
        self._call("cuLaunchKernel", self._function(name), blocks, 1, 1, threads, 1, 1, 0, None, arguments, None)
        self._call("cuCtxSynchronize")


@functools.cache
def modules() -> list[str]:
    return [zlib.decompress(path.read_bytes()).decode() for path in sorted(PTX.glob("kernels_*.ptx.z"))]


@functools.cache
def the_gpu() -> Gpu:
    return Gpu()
