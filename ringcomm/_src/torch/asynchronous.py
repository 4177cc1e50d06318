"""The named operations on tensors, without autograd, and sparse ones. ``synchronize(handle)`` waits.

Everywhere: tensors are in CPU memory or on a CUDA device, also both in one group, and results lie where they do; then
an operation comes behind what the current stream holds, and ``synchronize`` has the stream wait that is current when it
is called, not the host for the device. Contiguous ones are not copied, others are. ``name`` identifies the operation
on all ranks (None: numbered in the order of the calls); a name may be in flight once only (ValueError).
``process_set`` limits the operation to its ranks. In-place forms write to the memory of the tensor and return it;
autograd does not see that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ringcomm._src.arrays.handles import Handle, InPlaceHandle
from ringcomm._src.base.ops import Average, Sum, core_op
from ringcomm._src.named import collectives, named
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.tensors import require_arithmetic, require_dense

Tensor = torch.Tensor


class Operations(collectives.Operations[Tensor]):
    """Of tensors; autograd does not see them."""

    def alltoall_async(
        self,
        tensor: Tensor,
        splits: Any = None,
        name: str | None = None,
        process_set: Any = global_process_set,
        algorithm: str | None = None,
    ) -> Handle[tuple[Tensor, Tensor]]:
        """Rows of the first dimension to each rank; the result is (rows received, how many from each rank), these in
        the dtype of the splits if they are a tensor."""
        if not isinstance(splits, torch.Tensor):
            return super().alltoall_async(tensor, splits, name, process_set, algorithm)
        request = self.alltoall_request(tensor, splits.tolist(), process_set)
        finish = request.finish

        def cast(operation: Any) -> tuple[Tensor, Tensor]:
            output, received = finish(operation)
            return output, received.to(splits.dtype)

        request.finish = cast
        return named.submit(process_set, request, name, algorithm)


def check(tensor: Any, op: Any) -> None:
    if op is None:
        require_dense(tensor)
    else:
        require_arithmetic(tensor, op)


operations = Operations(check)


class SparseHandle:
    """A sparse reduction under way: wait for it by calling it, as in Horovod, or as for any handle."""

    def __init__(self, parts: Handle[list[Tensor]], finish: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._parts, self._finish = parts, finish

    def test(self) -> bool:
        return self._parts.test()

    def wait(self) -> Tensor:
        return self._finish(*self._parts.wait())

    __call__ = wait


def sparse_allreduce_async(
    tensor: Tensor, name: str | None, op: Any, process_set: Any = global_process_set
) -> SparseHandle:
    """Sum or average of sparse COO tensors. Call what it returns (or ``synchronize`` it) to get the sparse result.

    The entries of all ranks are gathered; entries of one index are added when the result is coalesced.

    Raises:
        ValueError: the tensor is dense, or ``op`` is neither Sum nor Average.
    """
    if not tensor.is_sparse:
        raise ValueError("sparse_allreduce_async takes sparse COO tensors; use allreduce_async for dense ones")
    op = core_op(op)
    if op not in (Sum, Average):
        raise ValueError(f"sparse_allreduce_async adds or averages; there is no {op.name} of sparse tensors")
    # Indices lie as (dimension, entry); gathering joins first dimensions, so entries go first.
    parts = [tensor._indices().t().contiguous(), tensor._values()]

    def finish(indices: Tensor, values: Tensor) -> Tensor:
        values = (values / process_set.size()).to(tensor.dtype) if op == Average else values
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False)

    return SparseHandle(operations.grouped_allgather_async(parts, name, process_set), finish)


_HANDLES = (InPlaceHandle, Handle, SparseHandle)


def poll(handle: Any) -> bool:
    """Whether ``synchronize(handle)`` would return at once. ValueError for what is no handle."""
    if not isinstance(handle, _HANDLES):
        raise ValueError(f"expected a handle that an operation has returned, not {handle!r}")
    return handle.test()


def synchronize(handle: Any) -> Any:
    """Waits for an operation and returns its result: a tensor, a list for grouped forms, a pair for alltoall.

    None for what is no handle.

    Raises:
        HorovodInternalError: (or a subclass that says more) what the operation met.
    """
    return handle.wait() if isinstance(handle, _HANDLES) else None
