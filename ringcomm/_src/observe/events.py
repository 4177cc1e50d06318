"""Distributes the core's trace events to several listeners: timeline, benchmark, tests."""

from __future__ import annotations

import threading

from ringcomm._src.core import _core

_lock = threading.Lock()
_listeners: list[Listener] = []


class Listener:
    """A consumer of all events between its creation and its close().

    The core records only while a listener is open.
    """

    def __init__(self) -> None:
        self._events: list[_core.TraceEvents] = []
        with _lock:
            if _listeners:
                _distribute()
            else:
                _core.trace_drain()  # drops earlier events
            _listeners.append(self)
            _core.trace_enable(True)

    def take(self) -> list[_core.TraceEvent]:
        """Returns the events since the last call, in order.

        The core keeps some ten thousand events between calls.
        """
        return [event for events in self.take_batches() for event in events.as_list()]

    def take_batches(self) -> list[_core.TraceEvents]:
        """Returns the events since the last call in the core's form."""
        with _lock:
            if self in _listeners:
                _distribute()
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Stops listening. The events until now can still be taken."""
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
