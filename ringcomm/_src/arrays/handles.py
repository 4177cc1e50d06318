"""Handles of non-blocking operations: callers test them and wait for their results."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ringcomm._src.base import process
from ringcomm._src.core import _core

Result = TypeVar("Result")


class Handle(Generic[Result], metaclass=ABCMeta):
    """A non-blocking operation; ``wait()`` returns its result.

    The handle keeps the buffers alive until the operation is done. ``finish`` makes the result once
    all of ``operations`` are done, and owns the buffers.

    Examples
    --------
    >>> handle = comm.iallreduce(np.ones(2))
    >>> handle.wait().tolist()
    [2.0, 2.0]
    >>> handle.test()
    True
    """

    __slots__ = ("_error", "_finish", "_operations", "_result", "name")

    def __init__(self, operations: Sequence[_core.Operation], finish: Callable[[], Result], name: str = "") -> None:
        _core.reap_finished()
        self.name = name
        self._operations = list(operations)
        self._finish: Callable[[], Result] | None = finish
        self._result: Result | None = None
        self._error: BaseException | None = None

    def test(self) -> bool:
        """Returns True if ``wait()`` would return, or raise, immediately."""
        return self._finish is None or all(operation.done() for operation in self._operations)

    def wait(self, timeout: float | None = None) -> Result:
        """Blocks until the operation is done, and returns its result; later calls return it again.

        Parameters
        ----------
        timeout : float | None
            Seconds to wait; None: no limit.

        Returns
        -------
        Result
            The result of the operation: what its blocking form returns.

        Raises
        ------
        TimeoutError
            The operation is not done within ``timeout``; it continues.
        ringcomm.MismatchError, RankLeftError, ShutDownError, PeerLostError
            The operation failed. Every further call raises the same error.
        """
        if self._finish is not None:
            if process.in_child:
                raise process.forked()
            self._error = self._first_error(timeout)
            finish, self._finish = self._finish, None
            operations, self._operations = self._operations, []
            if self._error is None:
                try:
                    self._result = finish()
                except Exception as error:
                    self._error = error
            elif not all(operation.over() for operation in operations):
                _core.keep_until_done(operations, finish)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _first_error(self, timeout: float | None) -> Exception | None:
        """Waits until all operations are done, and returns None. If one fails, returns its error.

        Does not wait for the operations after the failed one, which may never finish.
        """
        for operation in self._operations:
            if not operation.wait(-1.0 if timeout is None else timeout):
                raise TimeoutError(f"{self.name or 'operation'} is not done after {timeout} s")
            try:
                operation.check()
            except Exception as error:
                return error
        return None

    @property
    def result(self) -> Result:
        """The result; reading it calls ``wait()``."""
        return self.wait()

    def __repr__(self) -> str:
        return f"<ringcomm.Handle {self.name or 'unnamed'}: {'done' if self.test() else 'in progress'}>"

    def __del__(self) -> None:
        finish = getattr(self, "_finish", None)
        if finish is None or process.in_child:
            return
        if not all(operation.over() for operation in self._operations):
            _core.keep_until_done(self._operations, finish)


InPlaceHandle = _core.InPlaceHandle
"""A cheaper handle of a single operation whose result is the array that the caller gave."""
Handle.register(InPlaceHandle)
