"""The driver through ctypes: makes each call in the context of a device, and raises errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


class Driver:
    """The functions of libcuda, each called in the context of a device."""

    def __init__(self, path: str, device: Callable[[], int]) -> None:
        self._library = ctypes.CDLL(path)
        self._device, self._contexts = device, []
        self._aside = getattr(self._library, "standin_aside", lambda on: None)
        count = ctypes.c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for number in range(count.value):
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
            self._contexts.append(context)
        self._contexts = self._contexts or [None]

    def __call__(self, name: str, *arguments: Any, device: int | None = None) -> None:
        self._call("cuCtxSetCurrent", self._contexts[self._device() if device is None else device])
        try:
            self._call(name, *arguments)
        finally:
            self._call("cuCtxSetCurrent", self._contexts[self._device()])

    def _call(self, name: str, *arguments: Any) -> None:
        wide = [ctypes.c_void_p(one) if isinstance(one, int) and one > 0xFFFFFFFF else one for one in arguments]
        self._aside(1)  # the stand-in does not count calls that CuPy itself makes
        error = getattr(self._library, name)(*wide)
        self._aside(0)
        if error:
            raise RuntimeError(f"{name} failed with error {error}")
