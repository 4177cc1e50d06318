"""torch.distributed's reductions as the core's."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ReduceOp

from ringcomm import ops

_OPS = {
    int(of_torch): op
    for of_torch, op in (
        (ReduceOp.SUM, ops.Sum),
        (ReduceOp.AVG, ops.Average),
        (ReduceOp.PRODUCT, ops.Product),
        (ReduceOp.MIN, ops.Min),
        (ReduceOp.MAX, ops.Max),
        (ReduceOp.BAND, ops.BAND),
        (ReduceOp.BOR, ops.BOR),
        (ReduceOp.BXOR, ops.BXOR),
        (ReduceOp.PREMUL_SUM, ops.Sum),
    )
}
_SCALED_FIRST = int(ReduceOp.PREMUL_SUM)


def of_torch(op: Any) -> tuple[ops.Op, float]:
    """The op, and the factor that comes first."""
    kind = int(getattr(op, "op", op))
    if kind != _SCALED_FIRST:
        return _OPS[kind], 1.0
    factor = op.__getstate__()[1]
    return _OPS[kind], float(factor.item() if isinstance(factor, torch.Tensor) else factor)
