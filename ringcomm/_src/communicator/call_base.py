"""What all parts of a communicator stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringcomm._src.arrays.handles import Handle
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

CACHE_MISS = NotImplemented


def request_fields(algorithm: str | None, name: str, pre: float = 1.0, post: float = 1.0) -> dict[str, Any]:
    """Of a request."""
    return {"algorithm": algorithm or "", "name": name, "pre": pre, "post": post}


class Calls:
    """What the calls of :class:`ringcomm.Communicator` stand on."""

    rank: int
    size: int
    _channel: _core.Channel
    _messages: _core.Messages
    _can_cache: bool  # the communicator is usable: what the core remembers may run

    if TYPE_CHECKING:

        def _run(self, request: Request) -> None:
            """Runs one call of the core to its end, once all ranks have agreed on its algorithm if it names one."""

        def _submit(self, request: Request) -> Handle[Any]:
            """Hands one call to the worker, once all ranks have agreed on its algorithm if it names one."""

        def _require_usable(self) -> None:
            """Raises what makes the communicator unusable, if something does."""
