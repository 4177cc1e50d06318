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


def compression_hook(compression: Any) -> Callable[[Any, Any], Any]:
    """Returns a hook for ``model.register_comm_hook(group, hook)`` that averages in a wire format.

    The format applies between hosts; within a host that shares memory nothing is encoded. The
    residual of a bucket is added to its gradients in the next step (error feedback), as with
    ``DistributedOptimizer``. Small and one-dimensional gradients of a bucket are encoded too.
    Residuals restart at zero when DistributedDataParallel rebuilds its buckets, which it does once.

    Parameters
    ----------
    compression : type | WireFormat | str
        ``hvd.Compression.int8`` and so on, ``fp16``, ``bf16``, or the name of one of these.

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
    kept: dict[tuple[int, int, torch.dtype], _core.Feedback] = {}
    steps: dict[tuple[int, int, torch.dtype], int] = {}

    def hook(state: Any, bucket: Any) -> Any:
        group = state if state is not None else dist.group.WORLD
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"compression_hook needs a process group of the backend ringcomm, not {group!r}")
        buffer = bucket.buffer()
        which = (bucket.index(), buffer.numel(), buffer.dtype)
        now, feedback = wire, None
        if isinstance(wire, WireFormat):
            steps[which] = steps.get(which, 0) + 1
            if steps[which] <= wire.warmup_steps:
                now = wire.warmup_format()
            if wire.error_feedback:
                feedback = kept.setdefault(which, _core.Feedback([buffer.numel()]))
        return group.average(buffer, now, feedback).get_future().then(lambda done: done.value()[0])

    hook.__annotations__ = {
        "bucket": dist.GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }  # torch checks these annotations
    return hook
