"""Where an array of a GPU lies, and in which order things happen to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ringcomm import _core
from ringcomm.device import devices


class Place(NamedTuple):
    device: int  # ordinal
    stream: int | None  # the driver's handle of what works on the array now; None: nothing does
    now: Callable[[], int]  # the stream that the array is used on when it is asked

    @property
    def name(self) -> str:
        return f"GPU {self.device}"

    def fields(self) -> dict[str, Any]:
        """Of a request for arrays here. ValueError for a GPU that is not this rank's."""
        devices.require_one(self.device)
        return {"device": self.device, "stream": self.stream}

    def joined(self, request: _core.Request, finish: Callable[..., Any] | None) -> Joined:
        """What finishes a request for arrays here."""
        return Joined(request, self, finish)

    def read(self, address: int, host: int, nbytes: int) -> None:
        """Copies to the host's memory what the array holds; waits for it."""
        _core.device_copy(self.device, host, address, nbytes, self.stream or 0, True)

    def write(self, address: int, host: int, nbytes: int) -> None:
        """Copies from the host's memory, which may be used again when this returns."""
        _core.device_copy(self.device, address, host, nbytes, self.now(), True)


class Joined:
    """Finishes a request on a device: what comes next on the stream that is current then comes behind the result. The
    host does not wait for the device."""

    def __init__(self, request: _core.Request, place: Place, finish: Callable[..., Any] | None) -> None:
        self._request, self._place, self._finish = request, place, finish

    def begin(self) -> None:
        """The request is to be run once more, behind what has been done to its arrays since."""
        self._request.renew(self._place.device, self._place.now())

    def __call__(self, operation: Any = None) -> Any:
        self._request.join(self._place.now())
        return None if self._finish is None else self._finish(operation)
