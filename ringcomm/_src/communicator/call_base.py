"""The interface that the parts of a communicator use to run and submit requests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

Method = TypeVar("Method", bound=Callable[..., Any])


def cached(collective: int, key: int | None = None) -> Callable[[Method], Method]:
    """Decorator: calls with plain NumPy arrays run from the call cache (`_core.CachedMethod`).

    The method runs otherwise, and adds its call to the cache (`OrderedCalls._call`).
    """

    def decorate(method: Method) -> Method:
        return cast("Method", functools.update_wrapper(_core.CachedMethod(method, collective, key), method))

    return decorate


def request_fields(algorithm: str | None, name: str, pre: float = 1.0, post: float = 1.0) -> dict[str, Any]:
    """Returns the fields of a request that calls share."""
    return {"algorithm": algorithm or "", "name": name, "pre": pre, "post": post}


class Calls(_core.CachedCalls):
    """Base class of the calls of :class:`ringcomm.Communicator`."""

    rank: int
    size: int
    _channel: _core.Channel
    _messages: _core.Messages

    if TYPE_CHECKING:

        def _run(self, request: Request) -> None:
            """Runs one call to its end. Ranks first agree on an algorithm that the call names."""

        def _submit(self, request: Request) -> Handle[Any]:
            """Submits a call to the worker, after an agreement as in `_run`."""

        def _require_usable(self) -> None:
            """Raises the error that made the communicator unusable, if there is one."""
