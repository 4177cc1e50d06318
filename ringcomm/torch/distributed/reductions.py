"""torch.distributed's reductions as the core's."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ReduceOp

from ringcomm import ops

_OPS = {
    ReduceOp.SUM: ops.Sum,
    ReduceOp.AVG: ops.Average,
    ReduceOp.PRODUCT: ops.Product,
    ReduceOp.MIN: ops.Min,
    ReduceOp.MAX: ops.Max,
    ReduceOp.BAND: ops.BAND,
    ReduceOp.BOR: ops.BOR,
    ReduceOp.BXOR: ops.BXOR,
    ReduceOp.PREMUL_SUM: ops.Sum,
}


def of_torch(op: Any) -> tuple[ops.Op, float]:
    """The op, and the factor that comes first."""
    kind = getattr(op, "op", op)
    factor = 1.0
    if kind == ReduceOp.PREMUL_SUM:
        given = op.__getstate__()[1]
        factor = float(given.item() if isinstance(given, torch.Tensor) else given)
    return _OPS[kind], factor
