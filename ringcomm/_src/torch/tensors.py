"""Checks of torch tensors that the core can take, and tensors in memory shared by the ranks of a host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ringcomm._src.arrays import shared
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.base.ops import Adasum
from ringcomm._src.core import _core
from ringcomm._src.named import runtime
from ringcomm._src.torch.kind import DEVICES, device_module

# Dtypes with arithmetic. Collectives that only move data also take other dtypes, as bytes
# (ringcomm/_src/arrays/arrays.py).
DTYPES: dict[torch.dtype, int] = {
    getattr(torch, name): index for index, name in enumerate(_core.DTYPES) if hasattr(torch, name)
}


def require_dense(tensor: torch.Tensor) -> None:
    """Raises ValueError for a tensor that is not dense or in unsupported memory, TypeError for other objects."""
    if not isinstance(tensor, torch.Tensor):
        hint = ": pass torch.as_tensor(x), or use ringcomm.allreduce and the like, which take arrays"
        raise TypeError(
            f"expected a torch.Tensor, got {type(tensor).__module__}.{type(tensor).__name__}"
            f"{hint if hasattr(tensor, '__array__') else ''}"
        )
    if not tensor.is_cpu and tensor.device.type not in DEVICES:
        raise ValueError(
            f"tensor is on {tensor.device}: ringcomm.torch takes tensors of CPUs and of CUDA. "
            "Pass tensor.cpu() and copy the result back."
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"tensor has layout {tensor.layout}: use sparse_allreduce_async, or tensor.to_dense()")


def require_arithmetic(tensor: torch.Tensor, op: Any = None) -> None:
    """Like `require_dense`; also raises UnsupportedError for a dtype that cannot be reduced."""
    require_dense(tensor)
    if op == Adasum and tensor.dtype in DTYPES and not tensor.dtype.is_floating_point:
        raise UnsupportedError(f"Tensor type {tensor.type()} is not supported: there is no Adasum of {tensor.dtype}")
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(f"Tensor type {tensor.type()} is not supported: {tensor.dtype} cannot be reduced")


def empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, device: str | int | torch.device | None = None
) -> torch.Tensor:
    """Returns an uninitialised tensor in memory shared by the ranks of this host.

    An all-reduce in place of these tensors copies nothing. Otherwise like ``torch.empty``; the
    counterpart for arrays is :meth:`ringcomm.Communicator.empty`.

    Not collective. The memory serves operations between all ranks. If no memory can be shared
    (``Communicator.shared_memory_reason``), it is ordinary memory. It is freed with the tensor and its
    views. A forked child gets a separate copy.

    Args:
        size: integers, or one sequence of them; none: a tensor without dimensions.
        dtype: any dtype of dense CPU tensors; None: torch's default dtype.
        device: None or "cpu": shared memory; "cuda": this rank's GPU, by its local rank, even if
            another is torch's current one; "cuda:1" or 1: that GPU. Other devices of torch: their
            ordinary memory.

    Returns:
        A contiguous tensor.

    Raises:
        ValueError: before ``init()``.
        TypeError: a size is no integer.
        RuntimeError: a size is negative, or the dtype is quantized.
    """
    comm = runtime.session().comm
    where = torch.device("cpu" if device is None else device)
    if where.type in DEVICES and where.index is None:
        where = torch.device(where.type, comm.local_rank % max(1, device_module(where).device_count()))
    if where.type != "cpu":
        return torch.empty(*(size or [()]), dtype=dtype, device=where)
    shape = torch.empty(*(size or [()]), device="meta").shape  # raises as torch.empty does
    dtype = torch.get_default_dtype() if dtype is None else dtype
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(shared.flat(comm._node, nbytes)).view(dtype).reshape(shape)
