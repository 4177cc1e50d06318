"""Memory locations of arrays on GPUs, and the order of calls and copies relative to the arrays' streams.

A request on a device carries an order from `MemoryLocation.order`; `Joined` finishes it.
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
    now: Callable[[], int]  # returns the stream that the array's library uses now
    waits: bool = False  # the stream of the array is unknown: the host waits for results

    @property
    def name(self) -> str:
        return f"GPU {self.device}"

    def order(self, what: str, output: MemoryLocation | None = None, host_output: bool = False) -> _core.DeviceOrder:
        """Returns the order that runs a call after the pending work on its arrays here and on its output.

        Raises ValueError for a GPU that is not this rank's; UnsupportedError while a CUDA graph is captured.
        """
        devices.require_one(self.device)
        places = [self] if output is None else [self, output]
        for place in places:
            place.refuse_capture(what)
        streams = {place.stream for place in places if place.stream is not None}
        return _core.DeviceOrder(self.device, sorted(streams), host_output)

    def refuse_capture(self, what: str = "a step") -> None:
        """Raises UnsupportedError while the stream captures a CUDA graph: a replay would not communicate."""
        if self.stream is not None and _core.device_capturing(self.device, self.stream):
            raise UnsupportedError(
                f"{what}: a CUDA graph is being captured from the current stream of {self.name}, and communication "
                "cannot become part of one: capture the forward and backward pass of a model that is not distributed, "
                "and communicate outside"
            )

    def joined(
        self, order: _core.DeviceOrder, finish: Callable[..., Any] | None, output: MemoryLocation | None = None
    ) -> Joined:
        """Returns the finish function of a request for arrays here. `output`: location of the result, if different."""
        return Joined(order, self, finish, self if output is None else output)

    def renewed(self) -> MemoryLocation:
        return self._replace(stream=self.now())

    def read(self, address: int, host: int, nbytes: int) -> None:
        """Copies the array to the host's memory; blocks until the copy is done."""
        _core.device_copy(self.device, host, address, nbytes, self.stream or 0, True)

    def write(self, address: int, host: int, nbytes: int) -> None:
        """Copies from the host's memory, which may be reused when this returns."""
        _core.device_copy(self.device, address, host, nbytes, self.now(), True)

    def copy(self, address: int, other: MemoryLocation, source: int, nbytes: int) -> None:
        """Copies from an array of a GPU in the order of both streams; the host does not wait."""
        with self._behind(other) as here:
            _core.device_copy(self.device, address, source, nbytes, here, False)

    def arrange(self, view: View, other: MemoryLocation, source: View) -> None:
        """Copies as `copy` does, between arrays of equal shape and any strides on one GPU."""
        size = view.dtype.itemsize
        with self._behind(other) as here:
            _core.device_arrange(
                self.device, view.address, view.strides, source.address, source.strides, view.shape, size, here
            )

    @contextmanager
    def _behind(self, other: MemoryLocation) -> Iterator[int]:
        """Yields a stream for work that writes here and reads `other`.

        The work runs after the pending work of both streams; later work of both streams runs after it.
        """
        here, there = self.now(), other.now() if other.stream is None else other.stream
        if there != here:
            _core.DeviceOrder(other.device, [there]).hold(here)
        yield here
        if there != here:
            _core.DeviceOrder(self.device, [here]).hold(there)


class Joined:
    """Finish function of a request on a device: later work on the current stream runs after the result is ready.

    The host waits for the device only if the stream of the arrays is unknown.
    """

    def __init__(
        self, order: _core.DeviceOrder, place: MemoryLocation, finish: Callable[..., Any] | None, output: MemoryLocation
    ) -> None:
        self._order, self._place, self._finish, self._output = order, place, finish, output

    def begin(self, request: _core.Request) -> None:
        """Prepares the request for another run, after the pending work on its arrays."""
        self._place, self._output = self._place.renewed(), self._output.renewed()
        self._order = self._place.order("a prepared call", self._output, request.host_output)
        request.set_location(self._order)

    def __call__(self, operation: Any = None) -> Any:
        streams = {self._place.now(), self._output.now()}
        for stream in streams:
            self._order.join(stream)
        if self._place.waits or self._output.waits:
            self._order.wait()
        elif streams != {self._place.stream}:  # the arrays' memory may be reused when they are freed
            _core.keep_until_done([self._order], self._finish)
        return None if self._finish is None else self._finish(operation)
