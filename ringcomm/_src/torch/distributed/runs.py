"""The base of a process group of torch.distributed: its identity, and how its calls run.

`process_group` adds the collectives, `messages` the messages.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ringcomm._src.arrays import arrays
from ringcomm._src.communicator.groups import Group
from ringcomm._src.core._core import Operation, Request
from ringcomm._src.observe import accounts
from ringcomm._src.torch.distributed import world
from ringcomm._src.torch.distributed.callbacks import Callbacks, running
from ringcomm._src.torch.distributed.work import DONE, OperationTimeoutError, Pending, Work, run_blocking
from ringcomm._src.torch.kind import DEVICES

Tensor = torch.Tensor
Tensors = list[Tensor]

MAX_CACHED = 1024  # in-place calls that a group caches
SHORT_WAIT = 1e-3  # seconds that a repeated blocking call waits first, before it waits with a timeout
_NO_TIMEOUT = timedelta(0)
_Base: Any = dist.ProcessGroup  # Any, because its methods differ between versions of torch


class GroupCalls(_Base):
    """Runs the calls of one group in the order submitted, concurrently with other groups."""

    def __init__(self, group: Group, options: Any) -> None:
        super().__init__(group.rank, group.size)
        self._group, self._store = group, options.store
        self._seconds = options.timeout.total_seconds()
        self._shared = world.shared_tensors()
        self._described = ""
        self.setGroupName(options.group_id)
        self._calls = 0
        self._order = threading.Lock()  # makes the number of a call equal to its position in the group's order
        self._last: list[Operation | None] = [None, None]  # last operation submitted: by the program, by callbacks
        self._callbacks, self._unordered = Callbacks(), Callbacks(ordered=False)  # for collectives, for messages
        self._cached: dict[Any, tuple[Any, Request]] = {}
        self._coalesced: list[Work] | None = None  # works between _start_coalescing and _end_coalescing

    @classmethod
    def of(cls, options: Any) -> Any:
        """Creates a group from torch.distributed's description. Collective over the members."""
        ranks = list(options.global_ranks_in_group)
        if not ranks:
            world.join(options.group_rank, options.group_size)
            ranks = list(range(options.group_size))
        return cls(world.make_group(ranks, options.group_id, options.timeout.total_seconds()), options)

    # ---- identity ----------------------------------------------------------------------------------------------------
    def getBackendName(self) -> str:
        return "ringcomm"

    def setGroupName(self, name: str) -> None:
        self._label = name
        self._group.name = f"process group {name}"

    def getGroupName(self) -> str:
        return self._label

    def setGroupDesc(self, text: str) -> None:
        self._described = text

    def getGroupDesc(self) -> str:
        return self._described

    # Newer versions of torch call these on the backend of a device, which is the group itself here.
    supports_splitting = supports_coalescing = _supports_time_estimate = False

    def _get_backend(self, device: Any) -> Any:
        if torch.device(device).type not in ("cpu", *DEVICES):
            raise RuntimeError(
                f"process group {self._label} of the backend ringcomm supports CPU and CUDA tensors, not {device}"
            )
        return self

    def get_group_store(self) -> Any:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of later operations."""
        self._seconds = timeout.total_seconds()

    def stats(self, reset: bool = False) -> accounts.Stats:
        """Returns statistics of the group's collectives on this rank.

        :func:`ringcomm.stats` includes messages and all other traffic.

        Parameters
        ----------
        reset : bool
            True: restarts the counts at zero.
        """
        return self._group.stats(reset)

    def shutdown(self) -> None:
        """Leaves the group. Not collective.

        Waits for operations in progress, at most for the group's timeout. If an exception is being
        handled, does not wait; the operations then end with ShutDownError.
        """
        self._cached.clear()
        if sys.exc_info()[1] is None:
            self._finish_works()
        self._group.leave(f"process group {self._label} has been destroyed")

    def _finish_works(self) -> None:
        """Waits for the last operations, as Gloo does; warns if they fail or do not end."""
        for operation in self._last:
            if operation is None or self._group.has_left:
                continue
            why = "" if operation.wait(self._seconds) else f"is not done after {self._seconds:g} s"
            try:
                if not why:
                    operation.check()
            except Exception as error:
                why = f"has failed: {error}"
            if why:
                warnings.warn(
                    f"destroy_process_group: on rank {self._group.rank}, {operation.name} {why}. Its tensors and those "
                    "of earlier calls may differ between ranks: call wait() on every work first",
                    stacklevel=4,
                )

    def abort(self) -> None:
        """Leaves the group like ``shutdown``; ranks that wait for this rank get RankLeftError."""
        self._cached.clear()
        self._group.leave(f"process group {self._label} has been aborted")

    # ---- running calls -----------------------------------------------------------------------------------------------
    def _share_tensors(self, tensors: Tensors, bucket: bool = False) -> None:
        """Moves a bucket into shared memory, or reserves shared memory for later tensors."""
        if self._shared is not None:
            act = self._shared.move if bucket else self._shared.reserve_block
            for tensor in tensors:
                act(tensor)

    @staticmethod
    def _increment_versions(tensors: Tensors) -> None:
        """Increments versions of tensors, so that autograd detects changes of saved tensors.

        As in Gloo and NCCL, in-place reductions of single tensors do not call this.
        """
        for tensor in tensors:
            torch.autograd.graph.increment_version(tensor)

    def _run(
        self,
        make: Callable[..., Sequence[Request]],
        outputs: Tensors,
        options: Any,
        finish: Callable[[], Any] | None = None,
    ) -> Work:
        """Submits the requests of `make(name=...)` one after the other, and returns their work.

        `finish` runs after the `finish` of every request.
        """
        with self._order:
            requests = make(name=self._next_name())
            operations = [self._submit(request) for request in requests]

        def complete() -> None:
            for request, operation in zip(requests, operations, strict=True):
                request.finish(operation)
            if finish is not None:
                finish()

        return self._work(operations, outputs, complete, options)

    def _in_place(self, what: Any, tensors: Tensors, make: Callable[..., Sequence[Request]], options: Any) -> Work:
        """Runs an in-place call like `_run`. Caches calls with one tensor, so repeats are faster.

        `what` distinguishes the call from other calls with a tensor of this shape and dtype.
        """
        if len(tensors) != 1:
            return self._run(make, tensors, options)
        tensor = tensors[0]
        key = (what, tensor.dtype, tensor.shape)
        cached = self._cached.get(key)
        if cached is not None and (address := cached[0].address_if_match(tensor)) != -1:
            with self._order:
                operation = self._submit(cached[1], self._next_name(), address)
            if self._coalesced is None and not getattr(options, "asyncOp", True) and operation.wait(SHORT_WAIT):
                operation.check()
                return DONE
            return self._work([operation], [tensor], None, options)
        like = arrays.kind_of(tensor).like(tensor)

        def remember(name: str) -> Sequence[Request]:
            requests = make(name)
            if like is not None and len(self._cached) < MAX_CACHED and like.address_if_match(tensor) != -1:
                self._cached[key] = like, requests[0]
            made.extend(requests)
            return requests

        def drop_tensor() -> None:
            made[0].finish = None

        made: list[Request] = []
        return self._run(remember, [tensor], options, drop_tensor)

    def _submit(self, request: Request, name: str | None = None, address: int = 0) -> Operation:
        from_callback = running.callbacks is not None
        operation = self._last[from_callback] = self._group.submit(request, name, address, from_callback)
        return operation

    def _next_name(self) -> str:
        if running.callbacks is not None:
            running.calls += 1
            path = ".".join(map(str, running.path))
            return f"call {running.calls} of callback {path} of process group {self._label}"
        self._calls += 1
        return f"call {self._calls} of process group {self._label}"

    def _work(self, operations: Sequence[Pending], outputs: Tensors, finish: Any, options: Any) -> Work:
        """Returns the work of these operations; waits first if `options.asyncOp` is False."""
        timeout = getattr(options, "timeout", None)
        seconds = self._seconds if timeout is None or timeout <= _NO_TIMEOUT else timeout.total_seconds()
        if self._coalesced is None and not getattr(options, "asyncOp", True):
            run_blocking(operations, outputs, finish, seconds, self._timed_out)
            return DONE
        callbacks = (
            self._callbacks if all(isinstance(operation, Operation) for operation in operations) else self._unordered
        )
        work = Work(operations, outputs, finish, seconds, self._timed_out, callbacks)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _timed_out(self, what: Pending, after: float) -> Exception:
        self.abort()
        return OperationTimeoutError(
            f"rank {self._group.rank} of process group {self._label}: {what.name} did not finish within the timeout "
            f"of {after:g} s: another rank has not made this call, or is slower. This rank has left the group"
        )

    def _start_coalescing(self, device: Any = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: Any = None) -> Work:
        works, self._coalesced = self._coalesced or [], None

        def finish() -> None:
            for work in works:
                work.wait()

        operations = [operation for work in works for operation in work._operations]
        return self._work(operations, [out for work in works for out in work._outputs], finish, None)
