"""Gradient compression for DistributedDataParallel, as a communication hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ringcomm._src.base import ops
from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.compression.compression import resolved
from ringcomm._src.core import _core
from ringcomm._src.torch.compression import Compression, is_builtin
from ringcomm._src.torch.distributed.process_group import ProcessGroup
from ringcomm._src.torch.distributed.work import Work


def compression_hook(compression: Any) -> Callable[[Any, Any], Any]:
    """Returns a hook for ``model.register_comm_hook(group, hook)`` that averages in a wire format.

    The hook averages all sparse gradients of a backward pass in one exchange, without a wire
    format. So ``"none"`` is faster than no hook if a model has several sparse embeddings.

    The format applies between hosts; within a host that shares memory nothing is encoded. The
    residual of a bucket is added to its gradients in the next step (error feedback), as with
    ``DistributedOptimizer``. Small and one-dimensional gradients of a bucket are encoded too.
    Residuals restart at zero when DistributedDataParallel rebuilds its buckets, which it does once.

    Parameters
    ----------
    compression : type | WireFormat | str
        ``hvd.Compression.int8`` and so on, ``none``, ``fp16``, ``bf16``, or the name of one of these.

    Returns
    -------
    Callable[[Any, torch.distributed.GradBucket], torch.futures.Future]
        The hook. Its first argument is the process group, or None for the default one.

    Raises
    ------
    ValueError
        The format is unknown, or only for DistributedOptimizer (powersgd; torch has a hook for it).
    TypeError
        From the hook: the group is not ringcomm's.

    Examples
    --------
    >>> import torch.distributed as dist
    >>> from ringcomm.torch.distributed import compression_hook
    >>> dist.init_process_group("ringcomm")
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    >>> model.register_comm_hook(None, compression_hook("int8"))
    >>> model(torch.full((1, 2), rank + 1.0)).sum().backward()
    >>> model.module.weight.grad.tolist()  # the mean of the gradients 1 and 2
    [[1.5, 1.5]]
    >>> dist.destroy_process_group()
    """
    compression = resolved(compression, Compression)
    wire = compression if isinstance(compression, WireFormat) else compression.wire if is_builtin(compression) else ""
    ops.wire_code(wire)  # raises for unknown formats
    # By the parameters of a bucket: several models may have this hook, and buckets are rebuilt.
    kept: dict[tuple[int, ...], _core.Feedback] = {}
    steps: dict[tuple[int, ...], int] = {}
    passes: dict[ProcessGroup, _Buckets] = {}

    def hook(state: Any, bucket: Any) -> Any:
        group = state if state is not None else dist.group.WORLD
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"compression_hook needs a process group of the backend ringcomm, not {group!r}")
        buckets = passes[group] = passes.get(group) or _Buckets()
        buffer = bucket.buffer()
        if buffer.is_sparse:
            result = buckets.add_sparse(buffer, bucket.parameters()[0])
        elif buffer.is_cpu:
            result = buckets.add(average_dense(group, bucket, buffer))
        else:  # a future that streams wait for, not the host
            result = average_dense(group, bucket, buffer).get_future().then(lambda done: done.value()[0])
        if bucket.is_last():
            passes.pop(group).finish(group)
        return result

    def average_dense(group: ProcessGroup, bucket: Any, buffer: torch.Tensor) -> Work:
        now, feedback = wire, None
        if isinstance(wire, WireFormat):
            which = tuple(map(id, bucket.parameters()))
            steps[which] = steps.get(which, 0) + 1
            if steps[which] <= wire.warmup_steps:
                now = wire.warmup_format()
            if wire.error_feedback:
                feedback = kept.setdefault(which, _core.Feedback([buffer.numel()]))
        return group.average(buffer, now, feedback)

    hook.__annotations__ = {
        "bucket": dist.GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }  # torch checks these annotations
    return hook


class _Buckets:
    """The buckets of one backward pass in host memory.

    A dense bucket is one work; all sparse gradients, each of which is a bucket, are one more.
    If two models are in the pass, those of both up to the last bucket of the first.
    """

    # Seconds for which the last bucket's hook waits, and does the work itself. Then the hook
    # returns, because another rank may be waiting for this rank in another group.
    BRIEFLY = 0.1

    def __init__(self) -> None:
        self._works: list[Work] = []
        self._gradients: list[torch.Tensor] = []
        self._weights: list[torch.Tensor] = []
        self._sparse: Any = None
        self._over: Any = torch.futures.Future()

    # torch's C++ code reads an error only from a callback that raises it
    def add(self, work: Work) -> Any:
        """Returns the future of the dense bucket that this work averages."""
        self._works.append(work)
        return self._over.then(lambda _: work.result()[0])

    def add_sparse(self, gradient: torch.Tensor, weight: torch.Tensor) -> Any:
        """Returns the future of the average of this weight's gradient."""
        index = len(self._gradients)
        self._gradients.append(gradient)
        self._weights.append(weight)
        return self._over.then(lambda _: self._sparse.result()[index])

    def finish(self, group: ProcessGroup) -> None:
        """Averages the sparse gradients together, and waits for all buckets."""
        if self._gradients:
            self._sparse = group.average_sparse(self._gradients, self._weights)
            self._works.append(self._sparse)
        if all(work.wait_briefly(self.BRIEFLY) for work in self._works):
            self._over.set_result(None)
        else:
            all_done: Any = torch.futures.collect_all([work.get_future() for work in self._works])
            all_done.then(lambda _: self._over.set_result(None))
