"""Where an array of a GPU lies, and in which order things happen to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ringcomm import _core
from ringcomm.errors import UnsupportedError


class Place(NamedTuple):
    device: int  # ordinal
    stream: int | None  # the driver's handle of what works on the array now; None: nothing does
    now: Callable[[], int]  # the stream that the array is used on when it is asked

    @property
    def name(self) -> str:
        return f"GPU {self.device}"

    def order(self, host_output: bool = False) -> _core.DeviceOrder:
        """Of a call on arrays here, behind what is done to them now. Raises as `refuse_capture`."""
        self.refuse_capture()
        return _core.DeviceOrder(self.device, [] if self.stream is None else [self.stream], host_output)

    def refuse_capture(self) -> None:
        """UnsupportedError while what the stream is given goes into a CUDA graph."""
        if self.stream is not None and _core.device_capturing(self.device, self.stream):
            raise UnsupportedError(
                "a CUDA graph is being captured from the current stream, and communication cannot become part of one: "
                "capture the forward and backward pass of a model that is not distributed, and communicate outside"
            )

    def joined(self, order: _core.DeviceOrder, finish: Callable[..., Any] | None) -> Joined:
        """What finishes a request for arrays here."""
        return Joined(order, self, finish)

    def read(self, address: int, host: int, nbytes: int) -> None:
        """Copies to the host's memory what the array holds; waits for it."""
        _core.device_copy(self.device, host, address, nbytes, self.stream or 0, True)

    def write(self, address: int, host: int, nbytes: int) -> None:
        """Copies from the host's memory, which may be used again when this returns."""
        _core.device_copy(self.device, address, host, nbytes, self.now(), True)


class Joined:
    """Finishes a request on a device: what comes next on the stream that is current then comes behind the result. The
    host does not wait for the device."""

    def __init__(self, order: _core.DeviceOrder, place: Place, finish: Callable[..., Any] | None) -> None:
        self._order, self._place, self._finish = order, place, finish

    def begin(self, request: _core.Request) -> None:
        """The request is to be run once more, behind what has been done to its arrays since."""
        self._place = self._place._replace(stream=self._place.now())
        self._order = self._place.order(request.host_output)
        request.lie_at(self._order)

    def __call__(self, operation: Any = None) -> Any:
        now = self._place.now()
        self._order.join(now)
        if now != self._place.stream:  # on which the memory may be given to others as soon as the arrays are gone
            _core.keep_until_done([self._order], self._finish)
        return None if self._finish is None else self._finish(operation)
