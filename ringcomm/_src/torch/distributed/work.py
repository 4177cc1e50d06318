"""Works: the handles that operations of torch.distributed return, and their futures.

`runs` makes them from operations of the core.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from ringcomm._src.base import process
from ringcomm._src.base.errors import RingcommError
from ringcomm._src.core import _core
from ringcomm._src.torch.distributed.callbacks import CallbackFuture, Callbacks, waiting

_POLL_SECONDS = 1e-3  # seconds that the watcher waits for one operation before it checks all
_NO_TIMEOUT = timedelta(0)  # torch's C++ code passes zero to request the group's timeout


def _called_by_python() -> bool:
    """Returns True if Python code has called get_future().

    DistributedDataParallel calls it from C++, on a thread of autograd that may have no Python
    frame.
    """
    try:
        return "get_future" in sys._getframe(2).f_code.co_names
    except ValueError:
        return False


class OperationTimeoutError(RingcommError, TimeoutError):
    """An operation exceeded the group's or the caller's timeout. This rank has left the group."""


class Pending(Protocol):
    """Interface of an operation of the core, or a message."""

    @property
    def name(self) -> str: ...

    def done(self) -> bool: ...

    def over(self) -> bool: ...  # done, and its buffers are no longer used

    def wait(self, seconds: float) -> bool: ...

    def check(self) -> Any: ...


TimedOut = Callable[[Pending, float], Exception]


class Message:
    """A message with the interface of an operation."""

    def __init__(self, request: Any) -> None:
        self._request = request

    @property
    def name(self) -> str:
        return str(self._request.name)

    def done(self) -> bool:
        return bool(self._request.test())

    over = done

    def wait(self, seconds: float) -> bool:
        try:
            self._request.wait(seconds)
        except TimeoutError:
            return False
        except Exception:  # check() raises it again
            pass
        return True

    def check(self) -> Any:
        return self._request.wait()


class KeptWorks:
    """Keeps the Python part of works alive while C++ code holds only their C++ part.

    Torch before 2.8 does not keep the Python part, and ``wait`` would then never return. A work is
    kept until a caller has waited for it or requested its future. If there are more than
    `MAX_WORKS`, completed works are dropped.
    """

    MAX_WORKS = 256
    NEEDED = torch.__version__ < "2.8"  # versions compare as versions, not as texts

    def __init__(self) -> None:
        self._works: dict[int, Work] = {}
        self._lock = threading.Lock()

    def add(self, work: Work) -> None:
        if not self.NEEDED:
            return
        with self._lock:
            self._works[id(work)] = work
            if len(self._works) > self.MAX_WORKS:
                for done in [kept for kept in self._works.values() if kept.is_completed()][: self.MAX_WORKS // 2]:
                    del self._works[id(done)]

    def drop(self, work: Work) -> None:
        if self.NEEDED:
            with self._lock:
                self._works.pop(id(work), None)


kept_works = KeptWorks()


class Work(dist.Work):
    """The work of one or several operations, in the order submitted.

    Parameters
    ----------
    operations : Sequence[Pending]
        Operations to wait for.
    outputs : list[torch.Tensor]
        Tensors that hold the result once all operations are done.
    finish : Callable[[], Any] | None
        Computes the outputs after all operations; called once.
    seconds : float
        Timeout of waits for which the caller gives none.
    timed_out : TimedOut
        Called with the operation and the timeout once the timeout has passed. It returns the error,
        and aborts the operations that cannot continue.
    callbacks : Callbacks | None
        Runs the callbacks of the future.
    """

    def __init__(
        self,
        operations: Sequence[Pending],
        outputs: list[torch.Tensor],
        finish: Callable[[], Any] | None,
        seconds: float,
        timed_out: TimedOut,
        callbacks: Callbacks | None = None,
    ) -> None:
        super().__init__()
        _core.reap_finished()
        self._operations, self._outputs, self._finish = operations, outputs, finish
        self._seconds, self._timed_out = seconds, timed_out
        self._error: BaseException | None = None
        self._over = not operations and finish is None
        self._status: Any = None
        self._lock = threading.Lock()
        self._future: Any = None
        self._callbacks = callbacks
        kept_works.add(self)

    # ---- torch.distributed.Work --------------------------------------------------------------------------------------
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until the outputs may be used. On a device, the current stream waits, not the host.

        Raises
        ------
        OperationTimeoutError
            The operation did not end within the timeout.
        ringcomm.MismatchError, RankLeftError, ShutDownError, PeerLostError
            The operation failed. Every further call raises the error again.
        """
        if not self._over:
            seconds = self._seconds if timeout is None or timeout <= _NO_TIMEOUT else timeout.total_seconds()
            with waiting():
                for operation in self._operations:
                    if not operation.wait(seconds):
                        with self._lock:
                            if not self._over:
                                self._end(self._timed_out(operation, seconds))
                        break
            self._complete_work()
        kept_works.drop(self)
        if self._error is not None:
            raise self._error
        return True

    def wait_briefly(self, seconds: float) -> bool:
        """Waits for at most this time for each operation. Returns False if one is not done then."""
        with waiting():
            return self._over or all(operation.wait(seconds) for operation in self._operations)

    def is_completed(self) -> bool:
        """Returns True if ``wait`` would return or raise immediately."""
        return self._over or all(operation.done() for operation in self._operations)

    def is_success(self) -> bool:
        """Returns True if the work is completed without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Returns the exception that ``wait`` would raise; None while the work is in progress."""
        if not self.is_completed():
            return None
        self._complete_work()
        return self._error

    def synchronize(self) -> None:
        """Calls ``wait``."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """Waits, and returns the output tensors."""
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        """Waits, and returns the group's rank that sent the message."""
        self.wait()
        return int(self._status)

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Returns a ``torch.futures.Future`` of the output tensors, or of the error.

        Callbacks may wait and call collectives (:mod:`ringcomm._src.torch.distributed.callbacks`).
        """
        by_python = _called_by_python()
        with self._lock:
            if self._future is None:
                devices: list[Any] = sorted({str(output.device) for output in self._outputs if not output.is_cpu})
                if self._callbacks is not None and by_python and not devices:
                    self._future = CallbackFuture(self._callbacks)
                    watcher.watch(self, self._future)
                else:  # torch's future: C++ can read its error, and it waits for the outputs' streams
                    done: Any = torch.futures.Future(devices=devices)
                    self._future = done.then(lambda _: self.result())
                    watcher.watch(self, done)
                kept_works.drop(self)
            return self._future

    # ---- the end of a work -------------------------------------------------------------------------------------------
    def _complete_work(self) -> None:
        """Finishes the work, once all operations are done or one has timed out."""
        with self._lock:
            if self._over:
                return
            try:
                for operation in self._operations:
                    self._status = operation.check()
                if self._finish is not None:
                    self._status = self._finish()
            except Exception as error:
                self._end(error)
            else:
                self._end(None)

    def _end(self, error: BaseException | None) -> None:
        finish, self._finish = self._finish, None
        self._error, self._over = error, True
        if error is not None:
            keep_buffers(self._operations, (self._outputs, finish))

    def __del__(self) -> None:
        if not self._over:  # the program did not wait: operations may still use the tensors
            keep_buffers(self._operations, (self._outputs, self._finish))


def keep_buffers(operations: Sequence[Any], buffers: Any) -> None:
    """Keeps the buffers allocated as long as an abandoned operation may use them."""
    if not process.in_child and not all(operation.over() for operation in operations):
        _core.keep_until_done(list(operations), buffers)


def run_blocking(
    operations: Sequence[Pending],
    outputs: list[torch.Tensor],
    finish: Callable[[], Any] | None,
    seconds: float,
    timed_out: TimedOut,
) -> None:
    """Does the same as ``Work(...).wait()``."""
    try:
        with waiting():
            for operation in operations:
                if not operation.wait(seconds):
                    raise timed_out(operation, seconds)
                operation.check()
    except BaseException:
        keep_buffers(operations, (outputs, finish))
        raise
    if finish is not None:
        finish()


class Watcher:
    """A thread that completes futures. The first call of `watch` starts it.

    Callbacks that torch itself attaches, for example for ``collect_all``, run on this thread. If a
    callback runs for long, another thread takes over.
    """

    _TAKEOVER_SECONDS = 0.05  # seconds until another thread takes over

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, Any]] = []
        self._over: deque[tuple[Work, Any]] = deque()  # works that are done, and their futures to complete
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._completing = 0.0  # time when the thread began to complete a future; 0: it completes none
        self._supervisor: threading.Thread | None = None

    def watch(self, work: Work, future: Any) -> None:
        """Completes `future` when `work` is done."""
        with self._changed:
            self._waiting.append((work, future))
            if self._thread is None:
                self._thread = self._start(self._run)
                self._supervisor = self._start(self._supervise)
            self._changed.notify_all()

    def _start(self, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run, name="ringcomm-futures", daemon=True)
        thread.start()
        return thread

    def _supervise(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._over:
                    self._changed.wait()
                if self._completing and time.monotonic() - self._completing > self._TAKEOVER_SECONDS:
                    self._completing = 0.0
                    self._thread = self._start(self._run)
            time.sleep(self._TAKEOVER_SECONDS)

    def _run(self) -> None:
        while True:
            while self._over:
                if not self._complete():
                    return
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                if self._thread is not threading.current_thread():
                    return
                waiting = list(self._waiting)
            first = waiting[0][0]
            if not first._over and not first.is_completed():
                next((operation for operation in first._operations if not operation.done()), first._operations[0]).wait(
                    _POLL_SECONDS
                )
            over = [pair for pair in waiting if pair[0].is_completed()]
            with self._changed:
                self._waiting = [pair for pair in self._waiting if all(pair is not done for done in over)]
                self._over.extend(over)

    def _complete(self) -> bool:
        """Completes the next future. Returns False if another thread has taken over."""
        with self._changed:
            if self._thread is not threading.current_thread():
                return False
            work, future = self._over.popleft()
            self._completing = time.monotonic()
        if not isinstance(future, CallbackFuture):
            future.set_result(None)
        elif (error := work.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(work._outputs)
        with self._changed:
            if self._thread is not threading.current_thread():
                return False
            self._completing = 0.0
        return True


watcher = Watcher()
DONE = Work([], [], None, 0.0, lambda *_: AssertionError())
"""The work of a call that the caller has waited for."""
