"""`ringcomm bench --device cuda`: buffers in the memory of this rank's GPU.

Inputs are made on the host, copied to a second buffer there, and from that to the input by the device itself before
each call: the call finds memory that the device has just written. A time goes from the call to when the stream has its
result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringcomm._src.arrays.device import devices
from ringcomm._src.arrays.device.array import DeviceArray
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.core import _core

Array = np.ndarray[Any, Any]


def why_not(device: str) -> str | None:
    """Why there can be no buffers on it; None if there can."""
    if device == "cpu":
        return None
    try:
        number = devices.of_name(device)
        _core.DeviceMemory(number, 1)
    except (UnsupportedError, ValueError, RuntimeError) as error:
        return f"--device {device}: {error}"
    return None


def ordinal(device: str, local_rank: int) -> int | None:
    """None: the host's memory."""
    return None if device == "cpu" else devices.of_name(device, local_rank)


class Buffers:
    """The input and the output of one case on the device: 1-d, of a NumPy dtype; `given` and `taken` elements.
    `aliased`: they are one."""

    def __init__(self, device: int, dtype: np.dtype[Any], given: int, taken: int, aliased: bool) -> None:
        self.device = device
        self.input = DeviceArray(given, dtype, device)
        self.output = self.input if aliased else DeviceArray(taken, dtype, device).set(np.zeros(taken, dtype))
        self._next = DeviceArray(given, dtype, device)

    def refill(self, values: Array) -> None:
        """The input, rewritten by the device."""
        self._next.set(values)
        _core.device_copy(self.device, _address(self.input), _address(self._next), values.nbytes, devices.LEGACY, True)

    def timed(self, call: Callable[[], object]) -> Callable[[], object]:
        """The same call, which ends when the device has its result."""

        def run() -> None:
            call()
            _core.device_copy(self.device, 0, 0, 0, devices.LEGACY, True)

        return run

    def around(self, call: Callable[[], object], host_input: Array, host_output: Array) -> Callable[[], object]:
        """A call on the host's memory, between copies of the input from the device and of the output to it."""

        def run() -> None:
            np.copyto(host_input, self.input.get())
            call()
            self.output.set(host_output)

        return run


def _address(array: DeviceArray) -> int:
    address: int = array.__cuda_array_interface__["data"][0]
    return address
