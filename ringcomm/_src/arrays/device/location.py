"""Memory locations of arrays on GPUs, and the order of calls relative to the arrays' streams.

A request for GPU arrays has a stream order (`_core.DeviceOrder`), made by `MemoryLocation.order`.
Its finish function is a `DeviceFinish`.
"""

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
    stream: int | None  # driver's handle of the stream with pending work on the array; None: no pending work
    current_stream: Callable[[], int]  # returns the stream that the array's library uses now
    host_waits: bool = False  # the stream of the array is unknown: the host waits for results

    @property
    def name(self) -> str:
        return f"GPU {self.device}"

    def order(self, what: str, output: MemoryLocation | None = None, host_output: bool = False) -> _core.DeviceOrder:
        """Returns the order that runs a call after the pending work on its arrays and its output.

        Raises ValueError for a GPU that is not this rank's; UnsupportedError while a CUDA graph is
        captured.
        """
        devices.require_same_device(self.device)
        locations = [self] if output is None else [self, output]
        for location in locations:
            location.refuse_capture(what)
        streams = {location.stream for location in locations if location.stream is not None}
        return _core.DeviceOrder(self.device, sorted(streams), host_output)

    def refuse_capture(self, what: str = "a step") -> None:
        """Raises UnsupportedError during CUDA graph capture: a replay would not communicate."""
        if self.stream is not None and _core.device_capturing(self.device, self.stream):
            raise UnsupportedError(
                f"{what}: a CUDA graph is being captured from the current stream of {self.name}, and a graph "
                "cannot contain communication: capture the forward and backward pass of a model that is not "
                "distributed, and communicate outside the capture"
            )

    def finish_function(
        self, order: _core.DeviceOrder, finish: Callable[..., Any] | None, output: MemoryLocation | None = None
    ) -> DeviceFinish:
        """Returns a request's finish function. `output`: location of the result, if different."""
        return DeviceFinish(order, self, finish, self if output is None else output)

    def at_current_stream(self) -> MemoryLocation:
        return self._replace(stream=self.current_stream())

    def read(self, address: int, host: int, nbytes: int) -> None:
        """Copies the array to the host's memory; blocks until the copy is done."""
        _core.device_copy(self.device, host, address, nbytes, self.stream or 0, True)

    def write(self, address: int, host: int, nbytes: int) -> None:
        """Copies from the host's memory, which may be reused when this returns."""
        _core.device_copy(self.device, address, host, nbytes, self.current_stream(), True)

    def copy(self, address: int, other: MemoryLocation, source: int, nbytes: int) -> None:
        """Copies from an array of a GPU in the order of both streams; the host does not wait."""
        with self._ordered_stream(other) as stream:
            _core.device_copy(self.device, address, source, nbytes, stream, False)

    def arrange(self, view: View, other: MemoryLocation, source: View) -> None:
        """Copies as `copy` does, between arrays of equal shape and any strides on one GPU."""
        size = view.dtype.itemsize
        with self._ordered_stream(other) as stream:
            _core.device_arrange(
                self.device, view.address, view.strides, source.address, source.strides, view.shape, size, stream
            )

    @contextmanager
    def _ordered_stream(self, other: MemoryLocation) -> Iterator[int]:
        """Yields a stream for work that writes here and reads `other`.

        The work runs after the pending work of both streams; later work of both streams runs after
        it.
        """
        stream, other_stream = self.current_stream(), other.current_stream() if other.stream is None else other.stream
        if other_stream != stream:
            _core.DeviceOrder(other.device, [other_stream]).hold(stream)
        yield stream
        if other_stream != stream:
            _core.DeviceOrder(self.device, [stream]).hold(other_stream)


class DeviceFinish:
    """Finish function of a request on a device.

    Later work on the current stream runs after the result is ready. The host waits for the device
    only if the stream of the arrays is unknown.
    """

    def __init__(
        self,
        order: _core.DeviceOrder,
        location: MemoryLocation,
        finish: Callable[..., Any] | None,
        output: MemoryLocation,
    ) -> None:
        self._order, self._location, self._finish, self._output = order, location, finish, output

    def begin(self, request: _core.Request) -> None:
        """Prepares the request for another run, after the pending work on its arrays."""
        self._location, self._output = self._location.at_current_stream(), self._output.at_current_stream()
        self._order = self._location.order("a persistent call", self._output, request.host_output)
        request.set_location(self._order)

    def __call__(self, operation: Any = None) -> Any:
        streams = {self._location.current_stream(), self._output.current_stream()}
        for stream in streams:
            self._order.join(stream)
        if self._location.host_waits or self._output.host_waits:
            self._order.wait()
        elif streams != {self._location.stream}:  # otherwise the arrays are freed too early
            _core.keep_until_done([self._order], self._finish)
        return None if self._finish is None else self._finish(operation)
