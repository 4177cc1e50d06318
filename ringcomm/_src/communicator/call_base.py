"""The interface that the parts of a communicator use to run and submit requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

CACHE_MISS = NotImplemented


class NoCallCache:
    """A call cache that is always empty."""

    def try_cached(self, *_: Any, **__: Any) -> Any:
        """Returns what ``Channel.try_cached`` returns if there is no matching call."""
        return CACHE_MISS

    def remember(self, *_: Any) -> None:
        """Adds nothing."""


def request_fields(algorithm: str | None, name: str, pre: float = 1.0, post: float = 1.0) -> dict[str, Any]:
    """Returns the fields of a request that calls share."""
    return {"algorithm": algorithm or "", "name": name, "pre": pre, "post": post}


class Calls:
    """Base class of the calls of :class:`ringcomm.Communicator`."""

    rank: int
    size: int
    _channel: _core.Channel
    _messages: _core.Messages
    _call_cache: _core.Channel | NoCallCache  # the channel, while calls from its cache may run

    if TYPE_CHECKING:

        def _run(self, request: Request) -> None:
            """Runs one call to its end. Ranks first agree on an algorithm that the call names."""

        def _submit(self, request: Request) -> Handle[Any]:
            """Submits a call to the worker, after an agreement as in `_run`."""

        def _require_usable(self) -> None:
            """Raises the error that made the communicator unusable, if there is one."""
