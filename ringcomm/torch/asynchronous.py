"""Operations that return a handle at once. ``synchronize(handle)`` waits and gives the result.

Everywhere: tensors are in CPU memory; contiguous ones are not copied, others are. ``name`` identifies the operation
on all ranks (None: numbered in the order of the calls); a name may be in flight once only (ValueError).
``process_set`` limits the operation to its ranks. In-place forms write to the memory of the tensor and return it;
autograd does not see that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ringcomm import arrays, named
from ringcomm._core import Request
from ringcomm.handles import Handle, InPlaceHandle
from ringcomm.ops import Average, Sum, as_op, chosen_op
from ringcomm.process_sets import global_process_set
from ringcomm.torch.tensors import require_arithmetic, require_cpu

Tensor = torch.Tensor


# ---- requests --------------------------------------------------------------------------------------------------------
def _to_reduce(
    tensor: Tensor, in_place: bool, op: Any, name: str | None, pre: float, post: float, process_set: Any
) -> Request:
    require_arithmetic(tensor, op)
    pair = arrays.pair(tensor, tensor if in_place else None)
    return named.allreduce(process_set, *pair, op, name, pre, post)


def _to_gather(tensor: Tensor, name: str | None, process_set: Any) -> Request:
    require_cpu(tensor)
    return named.allgather(process_set, arrays.source(tensor), name)


def _to_broadcast(tensor: Tensor, in_place: bool, root_rank: int, name: str | None, process_set: Any) -> Request:
    require_cpu(tensor)
    pair = arrays.pair(tensor, tensor if in_place else None)
    return named.broadcast(process_set, *pair, root_rank, name)


def _to_reducescatter(tensor: Tensor, op: Any, name: str | None, pre: float, post: float, process_set: Any) -> Request:
    require_arithmetic(tensor)
    return named.reducescatter(process_set, arrays.source(tensor), as_op(op), name, pre, post)


def _group(
    make: Callable[[Tensor, str | None], Request], tensors: Iterable[Tensor], name: str | None, process_set: Any
) -> Handle[list[Tensor]]:
    tensors = list(tensors)
    names = named.group_names(name, len(tensors))
    return named.submit_group(process_set, [make(tensor, one) for tensor, one in zip(tensors, names, strict=True)])


# ---- operations ------------------------------------------------------------------------------------------------------
def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[Tensor]:
    """Reduction of every rank's tensor, as a new tensor; see `allreduce`."""
    request = _to_reduce(tensor, False, chosen_op(op, average), name, prescale_factor, postscale_factor, process_set)
    return named.submit(process_set, request)


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[Tensor]:
    """The same in place."""
    handle = process_set.known.again(name, tensor, op, average, prescale_factor, postscale_factor)
    if handle is not None:
        return handle
    request = _to_reduce(tensor, True, chosen_op(op, average), name, prescale_factor, postscale_factor, process_set)
    return named.submit_first(process_set, request, tensor, op, average, prescale_factor, postscale_factor, name)


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[list[Tensor]]:
    """Reductions that start together, when all of them are ready on every rank; the result is a list."""
    op = chosen_op(op, average)
    return _group(
        lambda tensor, one: _to_reduce(tensor, False, op, one, prescale_factor, postscale_factor, process_set),
        tensors,
        name,
        process_set,
    )


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Handle[list[Tensor]]:
    """The same in place."""
    op = chosen_op(op, average)
    return _group(
        lambda tensor, one: _to_reduce(tensor, True, op, one, prescale_factor, postscale_factor, process_set),
        tensors,
        name,
        process_set,
    )


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
    op = as_op(op)
    if op not in (Sum, Average):
        raise ValueError(f"sparse_allreduce_async adds or averages; there is no {op.name} of sparse tensors")
    # Indices lie as (dimension, entry); gathering joins first dimensions, so entries go first.
    parts = [tensor._indices().t().contiguous(), tensor._values()]

    def finish(indices: Tensor, values: Tensor) -> Tensor:
        values = (values / process_set.size()).to(tensor.dtype) if op == Average else values
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False)

    return SparseHandle(grouped_allgather_async(parts, name, process_set), finish)


def allgather_async(tensor: Tensor, name: str | None = None, process_set: Any = global_process_set) -> Handle[Tensor]:
    """Every rank's tensor, joined on the first dimension, which may differ between ranks; see `allgather`."""
    return named.submit(process_set, _to_gather(tensor, name, process_set))


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: Any = global_process_set
) -> Handle[list[Tensor]]:
    """Gathers that start together, when all of them are ready on every rank; the result is a list."""
    return _group(lambda tensor, one: _to_gather(tensor, one, process_set), tensors, name, process_set)


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: Any = global_process_set
) -> Handle[Tensor]:
    """The root's tensor, as a new tensor; ``root_rank`` is a global rank."""
    return named.submit(process_set, _to_broadcast(tensor, False, root_rank, name, process_set))


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: Any = global_process_set
) -> Handle[Tensor]:
    """The same in place."""
    return named.submit(process_set, _to_broadcast(tensor, True, root_rank, name, process_set))


def alltoall_async(
    tensor: Tensor, splits: Any = None, name: str | None = None, process_set: Any = global_process_set
) -> Handle[tuple[Tensor, Tensor]]:
    """Rows of the first dimension to each rank; the result is (rows received, how many from each rank)."""
    require_cpu(tensor)
    rows = splits.tolist() if isinstance(splits, torch.Tensor) else splits
    request = named.alltoall(process_set, arrays.source(tensor), rows, name)
    if not isinstance(splits, torch.Tensor):
        return named.submit(process_set, request)

    finish = request.finish

    def cast(operation: Any) -> tuple[Tensor, Tensor]:
        output, received = finish(operation)
        return output, received.to(splits.dtype)

    request.finish = cast
    return named.submit(process_set, request)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: Any = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[Tensor]:
    """This rank's rows of the reduction; see `reducescatter`."""
    return named.submit(
        process_set, _to_reducescatter(tensor, op, name, prescale_factor, postscale_factor, process_set)
    )


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: Any = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[Tensor]]:
    """Reduce-scatters that start together, when all of them are ready on every rank; the result is a list."""
    return _group(
        lambda tensor, one: _to_reducescatter(tensor, op, one, prescale_factor, postscale_factor, process_set),
        tensors,
        name,
        process_set,
    )


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
