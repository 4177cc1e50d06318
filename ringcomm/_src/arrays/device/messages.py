"""Messages of arrays in a GPU's memory: they travel by way of the host.

What is sent is copied to the host first. What is received lands there, and is copied to the device when the receive is
waited for: behind what was done to the array before, in the order of the stream that is current then; the host waits
for this copy.
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
    """The bytes that a device's buffer holds, uint8 [nbytes]; the host waits for what its stream holds."""
    assert buffer.place is not None
    host = np.empty(nbytes_of(buffer), np.uint8)
    buffer.place.read(buffer.address, host.ctypes.data, host.nbytes)
    return host


class OnDevice(Exception):
    """An array to receive into lies on a device; `landing` is where its message may land."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__("the array to receive into lies on a GPU")
        self.landing = Landing(buffer)


class Landing:
    """Memory of the host that a message is received into, and the device's buffer that it is for."""

    def __init__(self, buffer: Buffer) -> None:
        assert buffer.place is not None
        self.host = np.empty(nbytes_of(buffer), np.uint8)
        self._buffer, self._place = buffer, buffer.place
        stream = self._place.now() if self._place.stream is None else self._place.stream
        self._before = _core.DeviceOrder(self._place.device, [stream])

    def arrived(self, status: Status) -> Status:
        """Copies what came to the device. Of a receive that was cancelled, or from nobody, nothing came."""
        if status.nbytes > 0 and not status.cancelled:
            self._before.hold(self._place.now())
            self._place.write(self._buffer.address, self.host.ctypes.data, status.nbytes)
        return status


class DeviceMessageRequest:
    """As :class:`ringcomm.MessageRequest`, of a receive into an array of a GPU."""

    def __init__(self, request: MessageRequest, landing: Landing) -> None:
        self._request = request
        self._landing: Landing | None = landing
        self._arriving = threading.Lock()

    def test(self) -> bool:
        """Whether ``wait()`` would return, or raise, at once; if so what came is in the array."""
        if not self._request.test():
            return False
        with contextlib.suppress(Exception):  # wait() raises it
            self.wait()
        return True

    def wait(self, timeout: float | None = None) -> Status:
        """The status, once what came is in the array.

        Raises:
            TimeoutError: it is not done after ``timeout`` seconds.
            ringcomm.MismatchError: the message is longer than the array.
        """
        status = self._request.wait(timeout)
        with self._arriving:
            landing, self._landing = self._landing, None
            return status if landing is None else landing.arrived(status)

    def cancel(self) -> bool:
        """Takes the receive back unless a message has matched it. Whether it was."""
        return self._request.cancel()

    @property
    def name(self) -> str:
        return self._request.name

    def __repr__(self) -> str:
        return repr(self._request)
