"""What of torch's tensors the core can take."""

from __future__ import annotations

from typing import Any

import torch

from ringcomm import _core
from ringcomm.ops import Adasum

# Dtypes with arithmetic. Collectives that only move data take any other dtype too, as its bytes (ringcomm/arrays.py).
DTYPES: dict[torch.dtype, int] = {
    getattr(torch, name): index for index, name in enumerate(_core.DTYPES) if hasattr(torch, name)
}


def require_cpu(tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor outside host memory or not dense, TypeError for what is no tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.device.type != "cpu":
        raise ValueError(
            f"tensor is on {tensor.device}: this version of ringcomm.torch takes CPU tensors only. "
            "Pass tensor.cpu() and copy the result back, or keep the model on the CPU."
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"tensor has layout {tensor.layout}: use sparse_allreduce_async, or tensor.to_dense()")


def require_arithmetic(tensor: torch.Tensor, op: Any = None) -> None:
    """As `require_cpu`, and ValueError for a dtype that cannot be reduced."""
    require_cpu(tensor)
    if op == Adasum and tensor.dtype in DTYPES and not tensor.dtype.is_floating_point:
        raise ValueError(f"Tensor type {tensor.type()} is not supported: there is no Adasum of {tensor.dtype}")
    if tensor.dtype not in DTYPES:
        raise ValueError(f"Tensor type {tensor.type()} is not supported: {tensor.dtype} cannot be reduced")
