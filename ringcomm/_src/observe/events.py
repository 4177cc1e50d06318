"""What the core does, event by event, for several that listen at once: the timeline, the benchmark, tests."""

from __future__ import annotations

import threading

from ringcomm._src.core import _core

_lock = threading.Lock()
_listeners: list[Listener] = []


class Listener:
    """Gets every event from its making to its closing. The core records while there is a listener, and only then."""

    def __init__(self) -> None:
        self._events: list[_core.TraceEvents] = []
        with _lock:
            if _listeners:
                _distribute()
            else:
                _core.trace_drain()  # of an earlier time
            _listeners.append(self)
            _core.trace_enable(True)

    def take(self) -> list[_core.TraceEvent]:
        """What has happened since the last call, in order. The core keeps some ten thousand events meanwhile."""
        return [event for events in self.take_whole() for event in events.as_list()]

    def take_whole(self) -> list[_core.TraceEvents]:
        """The same as the core has it."""
        with _lock:
            if self in _listeners:
                _distribute()
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """What happened before can still be taken."""
        with _lock:
            if self in _listeners:
                _core.trace_enable(len(_listeners) > 1)
                _distribute()
                _listeners.remove(self)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _distribute() -> None:
    events = _core.trace_drain()
    if len(events):
        for listener in _listeners:
            listener._events.append(events)
