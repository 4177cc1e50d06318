"""Checks of torch tensors for the core, and tensors in memory that a host's ranks share."""

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
    """Raises ValueError for a tensor of another layout or device, TypeError for other objects."""
    if not isinstance(tensor, torch.Tensor):
        hint = ": pass torch.as_tensor(x), or use ringcomm.allreduce and similar functions, which take arrays"
        raise TypeError(
            f"expected a torch.Tensor, got {type(tensor).__module__}.{type(tensor).__name__}"
            f"{hint if hasattr(tensor, '__array__') else ''}"
        )
    if not tensor.is_cpu and tensor.device.type not in DEVICES:
        raise ValueError(
            f"tensor is on {tensor.device}: ringcomm.torch supports CPU and CUDA tensors. "
            "Pass tensor.cpu() and copy the result back."
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"tensor has layout {tensor.layout}: use sparse_allreduce_async, or tensor.to_dense()")


def require_arithmetic(tensor: torch.Tensor, op: Any = None) -> None:
    """Like `require_dense`; also raises UnsupportedError for a dtype that cannot be reduced."""
    require_dense(tensor)
    if op == Adasum and tensor.dtype in DTYPES and not tensor.dtype.is_floating_point:
        raise UnsupportedError(f"Tensor type {tensor.type()} is not supported: Adasum does not support {tensor.dtype}")
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(f"Tensor type {tensor.type()} is not supported: {tensor.dtype} cannot be reduced")


def empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, device: str | int | torch.device | None = None
) -> torch.Tensor:
    """Returns an uninitialised tensor in memory shared by the ranks of this host.

    An in-place all-reduce of these tensors copies nothing. For arrays, see
    :meth:`ringcomm.Communicator.empty`.

    Not collective. The memory is for operations between all ranks. If no memory can be shared
    (``Communicator.shared_memory_reason``), the tensor is in ordinary memory. The memory is freed
    with the tensor and its views. A forked child gets a separate copy.

    Parameters
    ----------
    size : int | Sequence[int]
        Integers, or one sequence of them, as for ``torch.empty``.
    dtype : torch.dtype | None
        Any dtype of dense CPU tensors; None: torch's default dtype.
    device : str | int | torch.device | None
        None or "cpu": shared memory. "cuda": the GPU with this rank's local rank as index, even if
        torch's current GPU is another one. "cuda:1" or 1: that GPU. Other devices: their ordinary
        memory.

    Returns
    -------
    torch.Tensor
        A contiguous tensor.

    Raises
    ------
    ValueError
        The call precedes ``init()``.
    TypeError
        A size is no integer.
    RuntimeError
        A size is negative, or the dtype is quantised.

    Examples
    --------
    >>> x = hvd.empty(1000)
    >>> _ = x.fill_(rank)
    >>> hvd.allreduce_(x, name="shared", op=hvd.Sum)[0].item()
    1.0
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
    return torch.from_numpy(shared.empty_bytes(comm._node, nbytes)).view(dtype).reshape(shape)
