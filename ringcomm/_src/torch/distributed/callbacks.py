"""Callbacks of futures, on separate threads: they may wait, call collectives, run long and raise.

A group's callbacks run one at a time, in the order in which the program attached them. Callbacks
that a callback attaches run directly after it. So all ranks call the collectives of callbacks in
the same order, even if operations complete in different orders.

These collectives run on a stream separate from the program's
(:meth:`ringcomm._src.communicator.groups.Group.submit`).
"""

from __future__ import annotations

import bisect
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

_PATIENCE = 1.0  # seconds: if no callback has ended for this time, another one runs concurrently
# Replaces _PATIENCE while a callback waits for a collective. The collective may be able to complete
# only after the next callback has run.
_MORE_PATIENCE = 10.0
_IDLE = 10.0  # seconds after which an idle thread ends

Path = tuple[int, ...]  # position in the order: path of the callback that attached this one, then a number


class Running(threading.local):
    """State of the callback that this thread runs."""

    callbacks: Callbacks | None = None
    path: Path = ()
    attached = 0  # callbacks that it has attached
    calls = 0  # collectives that it has called


running = Running()


class Callbacks:
    """Callbacks of one group. `ordered`: one at a time; else each as soon as its future is done."""

    def __init__(self, ordered: bool = True) -> None:
        self._patience = _PATIENCE if ordered else 0.0
        self._items: list[tuple[Path, Any, Callable[[], None]]] = []  # sorted: (path, future, function)
        self._changed = threading.Condition()
        self._attached = 0
        self._busy = self._blocked = self._idle = 0  # threads: in a callback; waiting for a collective; idle
        self._since = 0.0  # time when a callback last began or ended

    def add(self, future: Any, act: Callable[[], None]) -> None:
        """Runs `act` once `future` is done."""
        with self._changed:
            if running.callbacks is self:
                running.attached += 1
                path = (*running.path, running.attached)
            else:
                self._attached += 1
                path = (self._attached,)
            if not self._items:
                self._since = time.monotonic()
            bisect.insort(self._items, (path, future, act), key=lambda item: item[0])
            self._require_thread()
        torch.futures.Future.add_done_callback(future, self._wake)

    def _wake(self, _: Any) -> None:
        with self._changed:
            self._changed.notify_all()

    def _require_thread(self) -> None:
        if self._items and not self._idle:
            self._idle += 1
            threading.Thread(target=self._serve, name="ringcomm-callbacks", daemon=True).start()

    def _serve(self) -> None:
        with self._changed:
            while self._step(lambda: False, _IDLE):
                pass
            self._idle -= 1

    def _step(self, enough: Callable[[], bool], idle: float) -> bool:
        """Runs a callback, or waits for one. Returns False after `idle` seconds, or if `enough()`."""
        if enough():
            return False
        item = self._next()
        if item is None:
            late = self._since + self._limit() - time.monotonic()
            ready = any(future.done() for _, future, _ in self._items)
            woken = self._changed.wait(max(late, 1e-3) if ready else idle)
            return woken or bool(self._items)
        self._idle -= 1
        self._busy += 1
        self._require_thread()
        self._since = time.monotonic()
        self._changed.release()
        try:
            self._run(*item)
        finally:
            self._changed.acquire()
            self._busy -= 1
            self._idle += 1
            self._since = time.monotonic()
            self._changed.notify_all()
        return True

    def _limit(self) -> float:
        return self._patience * (_MORE_PATIENCE / _PATIENCE if self._blocked else 1)

    def _next(self) -> tuple[Path, Callable[[], None]] | None:
        """Removes and returns the first callback if no other runs; after the limit, any ready one."""
        late = time.monotonic() - self._since >= self._limit()
        for index, (path, future, act) in enumerate(self._items):
            if future.done() and (late or (index == 0 and not self._busy)):
                del self._items[index]
                return path, act
            if not late:
                return None
        return None

    def _run(self, path: Path, act: Callable[[], None]) -> None:
        before = running.callbacks, running.path, running.attached, running.calls
        running.callbacks, running.path, running.attached, running.calls = self, path, 0, 0
        try:
            act()
        finally:
            running.callbacks, running.path, running.attached, running.calls = before

    def help(self, future: Any) -> None:
        """Runs callbacks until `future` is done. Called in a callback that waits for `future`."""
        torch.futures.Future.add_done_callback(future, self._wake)
        with self._changed:
            self._busy -= 1
            self._idle += 1
            try:
                while self._step(future.done, _IDLE) or not future.done():
                    pass
            finally:
                self._busy += 1
                self._idle -= 1

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        with self._changed:
            self._blocked += 1
        try:
            yield
        finally:
            with self._changed:
                self._blocked -= 1


def waiting() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which this thread waits for a collective: it extends the time limit."""
    return contextlib.nullcontext() if running.callbacks is None else running.callbacks.waiting()


class CallbackFuture(torch.futures.Future):
    """A future that runs its callbacks in the order of `Callbacks`."""

    def __init__(self, callbacks: Callbacks, of_callback: bool = False) -> None:
        """Makes the future. `of_callback`: a callback completes it, not a collective."""
        super().__init__()
        self._of_callback = of_callback
        self._callbacks = callbacks
        self._error: Exception | None = None

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Returns a future of ``callback``'s result. The callback runs once this future is done."""
        made = CallbackFuture(self._callbacks, of_callback=True)

        def act() -> None:
            try:
                result = callback(self)
            except Exception as error:
                made.set_exception(error)
            else:
                made.set_result(result)

        self._callbacks.add(self, act)
        return made

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Calls ``callback`` once this future is done, and prints an exception that it raises."""

        def act() -> None:
            try:
                callback(self)
            except Exception:
                print(
                    f"a callback of {self!r} raised an exception:\n{traceback.format_exc()}",
                    file=sys.stderr,
                    flush=True,
                )

        self._callbacks.add(self, act)

    def set_exception(self, result: Any) -> None:
        self._error = result
        super().set_exception(result)

    def wait(self) -> Any:
        if self._of_callback and running.callbacks is not None and not self.done():
            running.callbacks.help(self)
        with waiting():
            return super().wait()

    def value(self) -> Any:
        if self._error is not None:
            raise self._error
        return super().value()
