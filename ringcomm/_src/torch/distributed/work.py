"""What an operation of torch.distributed gives back."""

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

_LOOK = 1e-3  # seconds that the thread below waits for one operation before it looks at the others
_NO_TIMEOUT = timedelta(0)  # how C++ says: the group's


def _asked_by_python() -> bool:
    """Whether Python code has called get_future(). DistributedDataParallel calls it from C++, on a thread of autograd
    that may have no frame of Python's at all."""
    try:
        return "get_future" in sys._getframe(2).f_code.co_names
    except ValueError:
        return False


class OperationTimeoutError(RingcommError, TimeoutError):
    """An operation was not done in the time that the group or the caller gives. This rank has left the group."""


class Pending(Protocol):
    """An operation of the core, or a message."""

    @property
    def name(self) -> str: ...

    def done(self) -> bool: ...

    def over(self) -> bool: ...  # done, and its buffers may go

    def wait(self, seconds: float) -> bool: ...

    def check(self) -> Any: ...


TimedOut = Callable[[Pending, float], Exception]


class Message:
    """A message as an operation."""

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
    """Works whose Python part would go while C++ still has the rest, on which ``wait`` would then never return: torch
    before 2.8 does not keep it (those from 2.13 on were seen to). Each stays until somebody has waited for it, or asked
    for its future, or it is done and one of many."""

    MOST = 256
    NEEDED = torch.__version__ < "2.8"  # compared as versions, not as texts

    def __init__(self) -> None:
        self._works: dict[int, Work] = {}
        self._lock = threading.Lock()

    def add(self, work: Work) -> None:
        if not self.NEEDED:
            return
        with self._lock:
            self._works[id(work)] = work
            if len(self._works) > self.MOST:
                for one in [one for one in self._works.values() if one.is_completed()][: self.MOST // 2]:
                    del self._works[id(one)]

    def drop(self, work: Work) -> None:
        if self.NEEDED:
            with self._lock:
                self._works.pop(id(work), None)


kept_works = KeptWorks()


class Work(dist.Work):
    """Of one or several operations, in the order submitted.

    Args:
        operations: what to wait for.
        outputs: the tensors that hold the result once all are done.
        finish: makes the outputs of what the operations gave; called once, with what each one's ``check`` gives.
        seconds: how long to wait if the caller does not say.
        timed_out: called with the operation and its seconds when these are over, to end what cannot go on; gives the
            error.
        callbacks: run those of the future.
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
        """Returns when the outputs may be used; those on a device, by what its current stream is given next.

        Raises:
            OperationTimeoutError: it is not done by then.
            ringcomm.MismatchError, RankLeftError, ShutDownError, PeerLostError: what the operation met (again at every
                call).
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
            self._settle()
        kept_works.drop(self)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether ``wait`` would return, or raise, at once."""
        return self._over or all(operation.done() for operation in self._operations)

    def is_success(self) -> bool:
        """Whether it is over, and without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What ``wait`` would raise; None while it is under way."""
        if not self.is_completed():
            return None
        self._settle()
        return self._error

    def synchronize(self) -> None:
        """As ``wait``."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """The output tensors, once it is done."""
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        """The rank of the group that a message came from."""
        self.wait()
        return int(self._status)

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A ``torch.futures.Future`` of the output tensors; it has the error if there is one. Callbacks may wait and
        call collectives (:mod:`ringcomm._src.torch.distributed.callbacks`)."""
        by_python = _asked_by_python()
        with self._lock:
            if self._future is None:
                devices: list[Any] = sorted({str(one.device) for one in self._outputs if not one.is_cpu})
                if self._callbacks is not None and by_python and not devices:
                    self._future = CallbackFuture(self._callbacks)
                    watcher.watch(self, self._future)
                else:  # of which C++ sees the error, and whose streams come behind the outputs
                    done: Any = torch.futures.Future(devices=devices)
                    self._future = done.then(lambda _: self.result())
                    watcher.watch(self, done)
                kept_works.drop(self)
            return self._future

    # ---- its end -----------------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        """All operations are done, or one cannot be waited for."""
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
        if not self._over:  # nobody has waited, and the tensors may be nobody's any more
            keep_buffers(self._operations, (self._outputs, self._finish))


def keep_buffers(operations: Sequence[Any], buffers: Any) -> None:
    """As long as an operation that nobody waits for may use them."""
    if not process.in_child and not all(operation.over() for operation in operations):
        _core.keep_until_done(list(operations), buffers)


def run_to_the_end(
    operations: Sequence[Pending],
    outputs: list[torch.Tensor],
    finish: Callable[[], Any] | None,
    seconds: float,
    timed_out: TimedOut,
) -> None:
    """What ``Work(...).wait()`` does."""
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
    """A thread that completes futures, started for the first of them. Callbacks that torch itself attaches, as for
    ``collect_all``, run on it: where one takes long, another thread goes on."""

    _LONG = 0.05  # seconds

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, Any]] = []
        self._over: deque[tuple[Work, Any]] = deque()  # to be completed
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._completing = 0.0  # since when the thread completes one future
        self._deputy: threading.Thread | None = None

    def watch(self, work: Work, future: Any) -> None:
        """`future` is completed when `work` is over."""
        with self._changed:
            self._waiting.append((work, future))
            if self._thread is None:
                self._thread = self._start(self._run)
                self._deputy = self._start(self._look_after)
            self._changed.notify_all()

    def _start(self, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run, name="ringcomm-futures", daemon=True)
        thread.start()
        return thread

    def _look_after(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._over:
                    self._changed.wait()
                if self._completing and time.monotonic() - self._completing > self._LONG:
                    self._completing = 0.0
                    self._thread = self._start(self._run)
            time.sleep(self._LONG)

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
                next((one for one in first._operations if not one.done()), first._operations[0]).wait(_LOOK)
            over = [pair for pair in waiting if pair[0].is_completed()]
            with self._changed:
                self._waiting = [pair for pair in self._waiting if all(pair is not one for one in over)]
                self._over.extend(over)

    def _complete(self) -> bool:
        """The next one. False if another thread has gone on meanwhile."""
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
"""Of a call that the caller has waited for."""
