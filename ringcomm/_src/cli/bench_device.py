"""Provides buffers in the memory of this rank's GPU for `ringcomm bench --device cuda`.

Inputs are made on the host and copied to a second buffer on the device. Before each call the device
copies this buffer to the input, so that the call reads memory that the device has just written. The
measured time ends when the stream has completed the result.
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
    """Returns the reason why buffers cannot be made on the device; None if they can."""
    if device == "cpu":
        return None
    try:
        number = devices.of_name(device)
        _core.DeviceMemory(number, 1)
    except (UnsupportedError, ValueError, RuntimeError) as error:
        return f"--device {device}: {error}"
    return None


def ordinal(device: str, local_rank: int) -> int | None:
    """Returns the number of this rank's GPU; None: buffers are in the host's memory."""
    return None if device == "cpu" else devices.of_name(device, local_rank)


class Buffers:
    """The input and the output of one case on the device: 1-d arrays of a NumPy dtype.

    The input has `input_count` elements, the output `output_count`. `aliased`: both are one array.
    """

    def __init__(self, device: int, dtype: np.dtype[Any], input_count: int, output_count: int, aliased: bool) -> None:
        self.device = device
        self.input = DeviceArray(input_count, dtype, device)
        self.output = (
            self.input if aliased else DeviceArray(output_count, dtype, device).set(np.zeros(output_count, dtype))
        )
        self._next = DeviceArray(input_count, dtype, device)

    def refill(self, values: Array) -> None:
        """Rewrites the input by a copy on the device."""
        self._next.set(values)
        _core.device_copy(self.device, _address(self.input), _address(self._next), values.nbytes, devices.LEGACY, True)

    def synchronized(self, call: Callable[[], object]) -> Callable[[], object]:
        """Returns `call`, extended to block until the device has completed its result."""

        def run() -> None:
            call()
            _core.device_copy(self.device, 0, 0, 0, devices.LEGACY, True)

        return run

    def on_host_copies(self, call: Callable[[], object], host_input: Array, host_output: Array) -> Callable[[], object]:
        """Returns a call in host memory that copies the input from the device and the output back."""

        def run() -> None:
            np.copyto(host_input, self.input.get())
            call()
            self.output.set(host_output)

        return run


def _address(array: DeviceArray) -> int:
    address: int = array.__cuda_array_interface__["data"][0]
    return address
