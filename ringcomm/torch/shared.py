"""Tensors in memory that the ranks of a host have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ringcomm import runtime, shared


def empty(*size: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """An uninitialised tensor in memory that the ranks of this host share: an all-reduce in place of such tensors
    copies nothing. As ``torch.empty`` otherwise; what :meth:`ringcomm.Communicator.empty` is for arrays.

    Not collective, and for operations between all ranks; ordinary memory where none can be shared
    (``Communicator.shared_memory_reason``). The memory lives as long as the tensor and its views. A forked child must
    not touch it: there it is not mapped.

    Args:
        size: of the tensor: integers, or one sequence of them; none: a tensor without dimensions.
        dtype: any dtype of dense CPU tensors; None: torch's default dtype.

    Returns:
        A contiguous CPU tensor.

    Raises:
        ValueError: before ``init()``.
        TypeError: a size that is no integer.
        RuntimeError: a negative size, or a quantized dtype.
    """
    node = runtime.session().comm._node
    shape = torch.empty(*(size or [()]), device="meta").shape  # refuses what torch does
    dtype = torch.get_default_dtype() if dtype is None else dtype
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(shared.flat(node, nbytes)).view(dtype).reshape(shape)
