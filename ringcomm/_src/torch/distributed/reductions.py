"""Translates torch.distributed's reductions to ops of the core."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ReduceOp

from ringcomm._src.base import ops

_Numbered: Any = ReduceOp  # torch's type hints hide that its values are integers
_OPS = {
    int(of_torch): op
    for of_torch, op in (
        (_Numbered.SUM, ops.Sum),
        (_Numbered.AVG, ops.Average),
        (_Numbered.PRODUCT, ops.Product),
        (_Numbered.MIN, ops.Min),
        (_Numbered.MAX, ops.Max),
        (_Numbered.BAND, ops.BAND),
        (_Numbered.BOR, ops.BOR),
        (_Numbered.BXOR, ops.BXOR),
        (_Numbered.PREMUL_SUM, ops.Sum),
    )
}
_SCALED_FIRST = int(_Numbered.PREMUL_SUM)


def of_torch(op: Any) -> tuple[ops.Op, float]:
    """Returns the op, and the factor that multiplies the inputs first."""
    kind = int(getattr(op, "op", op))
    if kind != _SCALED_FIRST:
        return _OPS[kind], 1.0
    factor = op.__getstate__()[1]
    return _OPS[kind], float(factor.item() if isinstance(factor, torch.Tensor) else factor)
