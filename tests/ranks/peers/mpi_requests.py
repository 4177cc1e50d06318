"""mpi4py's requests, implemented with ringcomm's handles, message requests and persistent calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

import ringcomm


def fill(status: Any, found: Any) -> None:
    """Copies a status of ringcomm into one of mpi4py."""
    if status is not None and found is not None:
        status.source = MPI.PROC_NULL if found.source == ringcomm.PROC_NULL else found.source
        status.tag = MPI.ANY_TAG if found.tag == ringcomm.ANY_TAG else found.tag
        status.error = MPI.SUCCESS
        status.Set_elements(MPI.BYTE, found.nbytes)
        status.Set_cancelled(found.cancelled)


class Request:
    """A pending call; null without one. `after` runs when it has finished."""

    def __init__(self, handle: Any = None, after: Callable[[], None] | None = None) -> None:
        self._handle, self._after = handle, after

    def __bool__(self) -> bool:
        return self._handle is not None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Request) and not self and not other)

    __hash__ = None  # type: ignore[assignment]

    def Wait(self, status: Any = None) -> bool:
        if self._active():
            fill(status, self._wait())
        return True

    def Test(self, status: Any = None) -> bool:
        if not self._active():
            return True
        if not self._handle.test():
            return False
        fill(status, self._wait())
        return True

    def Get_status(self, status: Any = None) -> bool:
        return not self._active() or self._handle.test()

    def Cancel(self) -> None:
        if hasattr(self._handle, "cancel"):
            self._handle.cancel()

    def Free(self) -> None:
        self._handle = None

    def _active(self) -> bool:
        return self._handle is not None

    def _wait(self) -> Any:
        handle, self._handle = self._handle, None
        result = handle.wait()
        if self._after is not None:
            self._after()
        return result if isinstance(result, ringcomm.Status) else None

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Any = None) -> int:
        active = [index for index, request in enumerate(requests) if request._active()]
        if not active:
            return MPI.UNDEFINED
        index = next((index for index in active if requests[index]._handle.test()), active[0])
        requests[index].Wait(status)
        return index

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: Any = None) -> bool:
        for request in requests:
            request.Wait()
        return True

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: Any = None) -> bool:
        if not all(request.Get_status() for request in requests):
            return False
        return cls.Waitall(requests)


class Prequest(Request):
    """A persistent call: `begin` starts it and returns a handle to wait on."""

    def __init__(self, begin: Callable[[], Any] | None = None, after: Callable[[], None] | None = None) -> None:
        super().__init__(None, after)
        self._begin = begin

    def __bool__(self) -> bool:
        return self._begin is not None

    def Start(self) -> None:
        assert self._begin is not None and self._handle is None
        self._handle = self._begin()

    def Free(self) -> None:
        self._begin = None

    @classmethod
    def Startall(cls, requests: Sequence[Prequest]) -> None:
        for request in requests:
            request.Start()


NULL = Request()


class Several:
    """A send and a receive that one handle waits for. The result is that of the last one."""

    def __init__(self, *handles: Any) -> None:
        self._handles = handles

    def test(self) -> bool:
        return all(handle.test() for handle in self._handles)

    def wait(self) -> Any:
        return [handle.wait() for handle in self._handles][-1]
