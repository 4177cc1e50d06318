"""Where an array of a GPU lies, and in which order things happen to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ringcomm._src.arrays.device import devices
from ringcomm._src.arrays.device.dlpack import View
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.core import _core


class MemoryLocation(NamedTuple):
    device: int  # ordinal
    stream: int | None  # the driver's handle of what works on the array now; None: nothing does
    now: Callable[[], int]  # the stream that the array is used on when it is asked
    waits: bool = False  # nobody knows that stream: the host waits for results

    @property
    def name(self) -> str:
        return f"GPU {self.device}"

    def order(self, what: str, output: MemoryLocation | None = None, host_output: bool = False) -> _core.DeviceOrder:
        """Of a call on arrays here, and its output, behind what is done to them now.

        Raises ValueError for a GPU that is not this rank's; UnsupportedError while a CUDA graph is captured."""
        devices.require_one(self.device)
        places = [self] if output is None else [self, output]
        for place in places:
            place.refuse_capture(what)
        streams = {place.stream for place in places if place.stream is not None}
        return _core.DeviceOrder(self.device, sorted(streams), host_output)

    def refuse_capture(self, what: str = "a step") -> None:
        """UnsupportedError while what the stream is given goes into a CUDA graph: a replay would move nothing."""
        if self.stream is not None and _core.device_capturing(self.device, self.stream):
            raise UnsupportedError(
                f"{what}: a CUDA graph is being captured from the current stream of {self.name}, and communication "
                "cannot become part of one: capture the forward and backward pass of a model that is not distributed, "
                "and communicate outside"
            )

    def joined(
        self, order: _core.DeviceOrder, finish: Callable[..., Any] | None, output: MemoryLocation | None = None
    ) -> Joined:
        """What finishes a request for arrays here. `output`: where the result lies, if another stream may use it."""
        return Joined(order, self, finish, self if output is None else output)

    def renewed(self) -> MemoryLocation:
        return self._replace(stream=self.now())

    def read(self, address: int, host: int, nbytes: int) -> None:
        """Copies to the host's memory what the array holds; waits for it."""
        _core.device_copy(self.device, host, address, nbytes, self.stream or 0, True)

    def write(self, address: int, host: int, nbytes: int) -> None:
        """Copies from the host's memory, which may be used again when this returns."""
        _core.device_copy(self.device, address, host, nbytes, self.now(), True)

    def copy(self, address: int, other: MemoryLocation, source: int, nbytes: int) -> None:
        """Copies what an array of a GPU holds, in the order of both streams; nobody waits."""
        with self._behind(other) as here:
            _core.device_copy(self.device, address, source, nbytes, here, False)

    def arrange(self, view: View, other: MemoryLocation, source: View) -> None:
        """As `copy`, of arrays of one shape with any strides, on one GPU."""
        size = view.dtype.itemsize
        with self._behind(other) as here:
            _core.device_arrange(
                self.device, view.address, view.strides, source.address, source.strides, view.shape, size, here
            )

    @contextmanager
    def _behind(self, other: MemoryLocation) -> Iterator[int]:
        """The stream for what writes here and reads there: behind both streams, which go on behind it."""
        here, there = self.now(), other.now() if other.stream is None else other.stream
        if there != here:
            _core.DeviceOrder(other.device, [there]).hold(here)
        yield here
        if there != here:
            _core.DeviceOrder(self.device, [here]).hold(there)


class Joined:
    """Finishes a request on a device: what comes next on the stream that is current then comes behind the result. The
    host does not wait for the device, but where nobody knows which stream the arrays are used on."""

    def __init__(
        self, order: _core.DeviceOrder, place: MemoryLocation, finish: Callable[..., Any] | None, output: MemoryLocation
    ) -> None:
        self._order, self._place, self._finish, self._output = order, place, finish, output

    def begin(self, request: _core.Request) -> None:
        """The request is to be run once more, behind what has been done to its arrays since."""
        self._place, self._output = self._place.renewed(), self._output.renewed()
        self._order = self._place.order("a prepared call", self._output, request.host_output)
        request.set_location(self._order)

    def __call__(self, operation: Any = None) -> Any:
        streams = {self._place.now(), self._output.now()}
        for stream in streams:
            self._order.join(stream)
        if self._place.waits or self._output.waits:
            self._order.wait()
        elif streams != {self._place.stream}:  # where memory may be given to others as soon as the arrays are gone
            _core.keep_until_done([self._order], self._finish)
        return None if self._finish is None else self._finish(operation)
