"""The named operations on torch tensors, without autograd, and sparse reductions.

`Operations` holds the non-blocking forms; ``synchronize(handle)`` waits for their results.
Autograd's forms (`autograd`) are built on them.

Tensors are in CPU memory or on a CUDA device; one group may mix both. Results are in the memory of
their inputs. On a device, an operation starts after the work that the current stream holds.
``synchronize`` makes the stream that is current then wait; the host does not wait for the device.

Contiguous tensors are not copied; other tensors are. ``name`` identifies the operation on all ranks
(None: numbered in the order of the calls). A name that is in flight already raises ValueError.
``process_set`` limits the operation to its ranks. In-place forms write to the tensor's memory and
return the tensor; autograd does not see that.
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
    """Named operations on tensors, invisible to autograd."""

    def alltoall_async(
        self,
        tensor: Tensor,
        splits: Any = None,
        name: str | None = None,
        process_set: Any = global_process_set,
        algorithm: str | None = None,
    ) -> Handle[tuple[Tensor, Tensor]]:
        """Sends rows of the first dimension to each rank.

        The result is (rows received, number of rows from each rank). If ``splits`` is a tensor, the
        numbers have its dtype.
        """
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
    """Handle of a sparse reduction. Call it to wait, as in Horovod, or use it like any handle."""

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
    """Sums or averages sparse COO tensors. Call the returned handle (or ``synchronize`` it) to get the result.

    The entries of all ranks are gathered. Entries with the same index are added when the result is
    coalesced.

    Raises:
        ValueError: the tensor is dense, or ``op`` is neither Sum nor Average.
    """
    if not tensor.is_sparse:
        raise ValueError("sparse_allreduce_async takes sparse COO tensors; use allreduce_async for dense ones")
    op = core_op(op)
    if op not in (Sum, Average):
        raise ValueError(f"sparse_allreduce_async adds or averages; there is no {op.name} of sparse tensors")
    # torch stores indices as (dimension, entry). Gathering joins first dimensions, so entries must
    # come first.
    parts = [tensor._indices().t().contiguous(), tensor._values()]

    def finish(indices: Tensor, values: Tensor) -> Tensor:
        values = (values / process_set.size()).to(tensor.dtype) if op == Average else values
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False)

    return SparseHandle(operations.grouped_allgather_async(parts, name, process_set), finish)


_HANDLES = (InPlaceHandle, Handle, SparseHandle)


def poll(handle: Any) -> bool:
    """Returns True if ``synchronize(handle)`` would return immediately. ValueError for other objects."""
    if not isinstance(handle, _HANDLES):
        raise ValueError(f"expected a handle that an operation has returned, not {handle!r}")
    return handle.test()


def synchronize(handle: Any) -> Any:
    """Waits for an operation and returns its result: a tensor, a list for grouped forms, a pair for alltoall.

    Returns None for an object that is no handle.

    Raises:
        HorovodInternalError: (or a more specific subclass) the operation failed.
    """
    return handle.wait() if isinstance(handle, _HANDLES) else None
