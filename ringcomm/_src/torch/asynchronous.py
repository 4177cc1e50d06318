"""The named operations on torch tensors, without autograd, and sparse reductions.

`Operations` holds the non-blocking forms; ``synchronize(handle)`` waits for their results.
Autograd's forms (`autograd`) are built on them.

Tensors are in CPU memory or on a CUDA device; one group may mix both. A result is on the device of
its input. On a GPU, an operation starts after the pending work of the current stream.
``synchronize`` makes the current stream wait for the result; the host does not wait for the GPU.

Contiguous tensors are not copied; other tensors are. ``name`` identifies the operation on all ranks
(None: numbered in the order of the calls). A name that is already in flight raises ValueError.
``process_set`` limits the operation to its ranks. In-place forms write to the tensor's memory and
return the tensor; autograd does not record these changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ringcomm._src.arrays.handles import Handle, InPlaceHandle
from ringcomm._src.base.ops import Average, Sum, core_op
from ringcomm._src.named import collectives, named
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.sparse import SparseSum
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
        priority: int = 0,
    ) -> Handle[tuple[Tensor, Tensor]]:
        """Sends rows of the first dimension to each rank; the non-blocking form of ``alltoall``.

        Parameters
        ----------
        tensor : torch.Tensor
            Rows to send, in the order of the ranks.
        splits : Sequence[int] | torch.Tensor | None
            Number of rows for each rank; None: equal numbers.
        name : str | None
            Name of the operation, equal on all ranks. None: unnamed calls match by their order.
        process_set : ProcessSet
            The ranks that take part.
        algorithm : str | None
            Algorithm of the exchange; None: chosen by the core.
        priority : int
            As for ``allreduce_async``.

        Returns
        -------
        Handle
            Its result is (rows received, number of rows from each rank). If ``splits`` is a tensor,
            the numbers have the dtype of ``splits``.

        Examples
        --------
        >>> handle = hvd.alltoall_async(torch.tensor([0, 1]) + 2 * rank, splits=[1, 1])
        >>> rows, counts = hvd.synchronize(handle)
        >>> bool((rows == torch.tensor([rank, 2 + rank])).all())
        True
        """
        if not isinstance(splits, torch.Tensor):
            return super().alltoall_async(tensor, splits, name, process_set, algorithm, priority)
        request = self.alltoall_request(tensor, splits.tolist(), process_set)
        finish = request.finish

        def cast(operation: Any) -> tuple[Tensor, Tensor]:
            output, received = finish(operation)
            return output, received.to(splits.dtype)

        request.finish = cast
        return named.submit(process_set, request, name, algorithm, priority)


def check(tensor: Any, op: Any) -> None:
    if op is None:
        require_dense(tensor)
    else:
        require_arithmetic(tensor, op)


operations = Operations(check)


class SparseHandle:
    """Handle of a sparse reduction. Call it to wait, as in Horovod, or use it like any handle."""

    def __init__(self, test: Callable[[], bool], wait: Callable[[], Tensor]) -> None:
        self.test, self.wait = test, wait

    def __call__(self) -> Tensor:
        return self.wait()


def sparse_allreduce_async(
    tensor: Tensor, name: str | None, op: Any, process_set: Any = global_process_set
) -> SparseHandle:
    """Starts a sum or average of sparse COO tensors.

    A rank adds its entries of equal index. Then ranks gather these sums, and add them in rank
    order. Entries of CUDA tensors are copied through host memory, and the host waits for the copy.

    Parameters
    ----------
    tensor : torch.Tensor
        A sparse COO tensor; the shape must be equal on all ranks.
    name : str | None
        Name of the operation, equal on all ranks. None: unnamed calls match by their order.
    op : Op
        ``Sum`` or ``Average``.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    SparseHandle
        Call it, or pass it to ``synchronize``, to get the result, which is coalesced.

    Raises
    ------
    ValueError
        The tensor is dense, or ``op`` is neither Sum nor Average.
    UnsupportedError
        The dtype cannot be added.
    MismatchError
        ``synchronize`` raises it on every rank if shapes or dtypes differ between ranks.

    Examples
    --------
    >>> mine = torch.sparse_coo_tensor([[rank, 2]], [1.0, 1.0], (3,), check_invariants=True)
    >>> handle = hvd.sparse_allreduce_async(mine, name="sparse", op=hvd.Sum)
    >>> hvd.synchronize(handle).to_dense().tolist()
    [1.0, 1.0, 2.0]
    """
    if not tensor.is_sparse:
        raise ValueError("sparse_allreduce_async takes sparse COO tensors; use allreduce_async for dense ones")
    op = core_op(op)
    if op not in (Sum, Average):
        raise ValueError(f"sparse_allreduce_async supports op Sum and Average, not {op.name}")
    total = SparseSum([tensor], name, op, process_set)
    return SparseHandle(total.test, lambda: total.wait()[0])


_HANDLES = (InPlaceHandle, Handle, SparseHandle)


def poll(handle: Any) -> bool:
    """Returns True if ``synchronize(handle)`` would return immediately.

    Parameters
    ----------
    handle : Handle
        A handle that a non-blocking operation has returned.

    Raises
    ------
    ValueError
        The object is no handle.

    Examples
    --------
    >>> handle = hvd.allreduce_async(torch.ones(2), name="polled")
    >>> while not hvd.poll(handle):
    ...     pass  # compute
    >>> hvd.synchronize(handle).tolist()
    [1.0, 1.0]
    """
    if not isinstance(handle, _HANDLES):
        raise ValueError(f"expected a handle that an operation has returned, not {handle!r}")
    return handle.test()


def synchronize(handle: Any) -> Any:
    """Waits for an operation and returns its result.

    Parameters
    ----------
    handle : Handle
        A handle that a non-blocking operation has returned.

    Returns
    -------
    torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, torch.Tensor] | None
        A list for grouped operations, a pair for alltoall. None if the object is no handle.

    Raises
    ------
    HorovodInternalError
        The operation failed. The error may be of a more specific subclass.

    Examples
    --------
    >>> handle = hvd.allreduce_async(torch.ones(2), name="waited", op=hvd.Sum)
    >>> hvd.synchronize(handle).tolist()
    [2.0, 2.0]
    """
    return handle.wait() if isinstance(handle, _HANDLES) else None
