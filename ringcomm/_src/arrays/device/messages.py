"""Point-to-point messages of arrays in a GPU's memory, staged through host memory.

A sent array is copied to the host first. A received message is stored in host memory and copied to
the device by the wait for the receive. That copy runs on the current stream, after earlier work on
the array, and the host waits for it.
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


def copy_to_host(buffer: Buffer) -> np.ndarray[Any, Any]:
    """Returns the bytes of a device's buffer, uint8 [nbytes]; waits for pending work on it."""
    assert buffer.place is not None
    host = np.empty(nbytes_of(buffer), np.uint8)
    buffer.place.read(buffer.address, host.ctypes.data, host.nbytes)
    return host


class NeedsStaging(Exception):
    """Raised for a receive into a device's array; `staging` is host memory to receive into."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__("the array to receive into is on a GPU")
        self.staging = StagingBuffer(buffer)


class StagingBuffer:
    """Host memory that a message is received into, and the device buffer that it is copied to."""

    def __init__(self, buffer: Buffer) -> None:
        assert buffer.place is not None
        self.host = np.empty(nbytes_of(buffer), np.uint8)
        self._buffer, self._location = buffer, buffer.place
        stream = self._location.current_stream() if self._location.stream is None else self._location.stream
        self._pending_work = _core.DeviceOrder(self._location.device, [stream])

    def copy_to_device(self, status: Status) -> Status:
        """Copies the received bytes to the device, if any, and returns `status`."""
        if status.nbytes > 0 and not status.cancelled:
            self._pending_work.hold(self._location.current_stream())
            self._location.write(self._buffer.address, self.host.ctypes.data, status.nbytes)
        return status


class DeviceMessageRequest:
    """A receive into an array of a GPU, with the methods of :class:`ringcomm.MessageRequest`."""

    def __init__(self, request: MessageRequest, staging: StagingBuffer) -> None:
        self._request = request
        self._staging: StagingBuffer | None = staging
        self._copying = threading.Lock()

    def test(self) -> bool:
        """Returns True if ``wait()`` would not block; the message is then in the array."""
        if not self._request.test():
            return False
        with contextlib.suppress(Exception):  # the caller's wait() raises the error
            self.wait()
        return True

    def wait(self, timeout: float | None = None) -> Status:
        """Blocks until the message is in the array, and returns the status.

        Raises
        ------
        TimeoutError
            The receive is not done after ``timeout`` seconds.
        ringcomm.MismatchError
            The message is longer than the array.
        """
        status = self._request.wait(timeout)
        with self._copying:
            staging, self._staging = self._staging, None
            return status if staging is None else staging.copy_to_device(status)

    def cancel(self) -> bool:
        """Cancels the receive unless a message has matched it. Returns True if it was cancelled."""
        return self._request.cancel()

    @property
    def name(self) -> str:
        return self._request.name

    def __repr__(self) -> str:
        return repr(self._request)
