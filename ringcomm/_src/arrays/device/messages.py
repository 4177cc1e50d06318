"""Point-to-point messages of arrays in a GPU's memory, staged through host memory.

A sent array is copied to the host first. A received message is stored in host memory and copied to the device by the
wait for the receive. That copy runs on the current stream, after earlier work on the array, and the host waits for it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np

from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.core import _core
from ringcomm._src.core._core import MessageRequest, Status


def nbytes_of(buffer: Buffer) -> int:
    return buffer.count * _core.ITEM_SIZES[buffer.dtype]


def on_host(buffer: Buffer) -> np.ndarray[Any, Any]:
    """Returns the bytes of a device's buffer, uint8 [nbytes]; the host waits for the pending work of its stream."""
    assert buffer.place is not None
    host = np.empty(nbytes_of(buffer), np.uint8)
    buffer.place.read(buffer.address, host.ctypes.data, host.nbytes)
    return host


class OnDevice(Exception):
    """Raised for a receive into an array on a device; `landing` is the host memory to receive into instead."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__("the array to receive into lies on a GPU")
        self.landing = Landing(buffer)


class Landing:
    """Host memory that a message is received into, and the device buffer that it is copied to."""

    def __init__(self, buffer: Buffer) -> None:
        assert buffer.place is not None
        self.host = np.empty(nbytes_of(buffer), np.uint8)
        self._buffer, self._place = buffer, buffer.place
        stream = self._place.now() if self._place.stream is None else self._place.stream
        self._before = _core.DeviceOrder(self._place.device, [stream])

    def arrived(self, status: Status) -> Status:
        """Copies the received bytes to the device; none for a cancelled receive or one from PROC_NULL."""
        if status.nbytes > 0 and not status.cancelled:
            self._before.hold(self._place.now())
            self._place.write(self._buffer.address, self.host.ctypes.data, status.nbytes)
        return status


class DeviceMessageRequest:
    """A receive into an array of a GPU, with the methods of :class:`ringcomm.MessageRequest`."""

    def __init__(self, request: MessageRequest, landing: Landing) -> None:
        self._request = request
        self._landing: Landing | None = landing
        self._arriving = threading.Lock()

    def test(self) -> bool:
        """Returns True if ``wait()`` would return, or raise, immediately; the message is then in the array."""
        if not self._request.test():
            return False
        with contextlib.suppress(Exception):  # wait() raises it
            self.wait()
        return True

    def wait(self, timeout: float | None = None) -> Status:
        """Blocks until the message is in the array, and returns the status.

        Raises:
            TimeoutError: the receive is not done after ``timeout`` seconds.
            ringcomm.MismatchError: the message is longer than the array.
        """
        status = self._request.wait(timeout)
        with self._arriving:
            landing, self._landing = self._landing, None
            return status if landing is None else landing.arrived(status)

    def cancel(self) -> bool:
        """Cancels the receive unless a message has matched it. Returns True if it was cancelled."""
        return self._request.cancel()

    @property
    def name(self) -> str:
        return self._request.name

    def __repr__(self) -> str:
        return repr(self._request)
