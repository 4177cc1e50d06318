"""Where an array of a GPU lies, and in which order things happen to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ringcomm import _core
from ringcomm.device import devices
from ringcomm.errors import UnsupportedError


class Place(NamedTuple):
    device: int  # ordinal
    stream: int | None  # the driver's handle of what works on the array now; None: nothing does
    now: Callable[[], int]  # the stream that the array is used on when it is asked
    waits: bool = False  # nobody knows that stream: the host waits for results

    @property
    def name(self) -> str:
        return f"GPU {self.device}"

    def fields(self) -> dict[str, Any]:
        """Of a request for arrays here. ValueError for a GPU that is not this rank's."""
        devices.require_one(self.device)
        return {"device": self.device, "stream": self.stream}

    def joined(self, request: _core.Request, finish: Callable[..., Any] | None, output: Place | None = None) -> Joined:
        """What finishes a request for arrays here. `output`: where the result lies, if another stream may use it."""
        return Joined(request, self, finish, output)

    def refuse_capture(self, what: str) -> None:
        """UnsupportedError while a CUDA graph is being made of what the stream gets: a replay would move nothing."""
        if self.stream is not None and _core.device_capturing(self.device, self.stream):
            raise UnsupportedError(
                f"{what}: a CUDA graph is being captured from the stream of this array on {self.name}, and ringcomm's "
                "copies cannot be part of one: call it outside of the capture"
            )

    def with_output(self, output: Place) -> Place:
        """Of a call that reads arrays here and writes others of the same GPU there: `self`, whose stream waits for
        `output`'s, which may be another library's."""
        if output.stream is None or output.stream == self.stream:
            return self
        if self.stream is None:
            return output
        _core.DevicePoint(output.device, output.stream).hold(self.stream)
        return self

    def read(self, address: int, host: int, nbytes: int) -> None:
        """Copies to the host's memory what the array holds; waits for it."""
        _core.device_copy(self.device, host, address, nbytes, self.stream or 0, True)

    def write(self, address: int, host: int, nbytes: int) -> None:
        """Copies from the host's memory, which may be used again when this returns."""
        _core.device_copy(self.device, address, host, nbytes, self.now(), True)

    def copy(self, address: int, other: Place, source: int, nbytes: int) -> None:
        """Copies what an array of a GPU holds, in the order of both streams; nobody waits."""
        here, there = self.now(), other.now() if other.stream is None else other.stream
        if there != here:
            _core.DevicePoint(other.device, there).hold(here)
        _core.device_copy(self.device, address, source, nbytes, here, False)
        if there != here:
            _core.DevicePoint(self.device, here).hold(there)


class Joined:
    """Finishes a request on a device: what comes next on the stream that is current then comes behind the result. The
    host does not wait for the device, but where nobody knows which stream the arrays are used on."""

    def __init__(
        self,
        request: _core.Request,
        place: Place,
        finish: Callable[..., Any] | None,
        output: Place | None = None,
    ) -> None:
        self._request, self._place, self._finish = request, place, finish
        self._output = place if output is None else output

    def begin(self) -> None:
        """The request is to be run once more, behind what has been done to its arrays since."""
        stream, other = self._place.now(), self._output.now()
        if other != stream:
            _core.DevicePoint(self._output.device, other).hold(stream)
        self._request.renew(self._place.device, stream)

    def __call__(self, operation: Any = None) -> Any:
        stream, other = self._place.now(), self._output.now()
        self._request.join(stream)
        if other != stream:
            self._request.join(other)
        if self._place.waits or self._output.waits:
            self._request.wait_for_device()
        return None if self._finish is None else self._finish(operation)
