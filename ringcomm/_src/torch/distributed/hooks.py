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
    """Returns a hook for ``model.register_comm_hook(group, hook)``, which averages gradients in a wire format.

    The format applies between hosts; within a host that shares memory nothing is encoded. Residuals of a
    bucket are added in the next step (error feedback), as with ``DistributedOptimizer``. Complete buckets
    are encoded, including small and one-dimensional gradients. Residuals restart at zero when
    DistributedDataParallel rebuilds its buckets, which it does once.

    Args:
        compression: ``hvd.Compression.int8`` and so on, ``fp16``, ``bf16``, or the name of one of these.

    The hook's first argument is the process group, or None for the default one.

    Raises:
        ValueError: there is no such format, or it is for DistributedOptimizer only (powersgd: torch has a
            hook for it).
        TypeError: from the hook: the group is not ringcomm's.
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
                now = wire.first()
            if wire.error_feedback:
                feedback = kept.setdefault(which, _core.Feedback([buffer.numel()]))
        return group.average(buffer, now, feedback).get_future().then(lambda done: done.value()[0])

    hook.__annotations__ = {
        "bucket": dist.GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }  # torch checks these annotations
    return hook
