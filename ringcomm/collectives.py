"""Named collectives on arrays: Horovod's functions, in any order, fused and checked.

Operations of different ranks are paired by ``name``; ranks may submit them in any order. Without a name, operations of
one kind are paired in the order in which they are submitted. Arrays are what :mod:`ringcomm.arrays` takes; results are
new arrays of the same kind unless the function ends in an underscore (in place). The ``_async`` forms return a handle
for :func:`poll` and :func:`synchronize`; the arrays they were given must not be touched before.

All of them raise, on every rank, ``MismatchError`` (ranks disagree on dtype, shape, op, root or kind under one name:
the job lives), ``RankLeftError`` (a rank that is needed has shut down or ended) and ``PeerLostError`` (a rank died;
fatal); and on this rank ``ValueError`` before ``init()``, for an operation of the same name in flight, or if this rank
is not in ``process_set``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm import arrays, named
from ringcomm.handles import Handle
from ringcomm.process_sets import ProcessSet, global_process_set


# ---- allgather -------------------------------------------------------------------------------------------------------
def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Handle[Any]:
    """:func:`allgather` in the background."""
    return named.submit(process_set, named.allgather(process_set, arrays.source(tensor), name))


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Every rank's ``tensor``, one after the other along the first dimension, which may differ between ranks. Any
    dtype."""
    return allgather_async(tensor, name, process_set).wait()


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[list[Any]]:
    """:func:`grouped_allgather` in the background."""
    return named.grouped(
        tensors, name, process_set, lambda tensor, one: named.allgather(process_set, arrays.source(tensor), one)
    )


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """:func:`allgather` of several arrays that run together."""
    return grouped_allgather_async(tensors, name, process_set).wait()


# ---- broadcast -------------------------------------------------------------------------------------------------------
def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Any]:
    """:func:`broadcast` in the background."""
    return named.submit(process_set, named.broadcast(process_set, *arrays.pair(tensor), root_rank, name))


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The values that ``root_rank`` (a rank of the world) gives, on every rank. Same dtype and shape everywhere; any
    dtype."""
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_async_(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Any]:
    """:func:`broadcast` in place and in the background."""
    return named.submit(process_set, named.broadcast(process_set, *arrays.pair(tensor, tensor), root_rank, name))


def broadcast_(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """:func:`broadcast` in place; returns ``tensor``."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


# ---- alltoall, barrier -----------------------------------------------------------------------------------------------
def alltoall_async(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[tuple[Any, Any]]:
    """:func:`alltoall` in the background; the result is always the pair (array, received splits)."""
    return named.submit(process_set, named.alltoall(process_set, arrays.source(tensor), splits, name))


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends part q of ``tensor`` (along the first dimension) to rank q of the set; gives the parts received, in rank
    order.

    Args:
        splits: rows to each rank, integers that add up to the first dimension; None: even parts. Any dtype of
            ``tensor``.

    Returns:
        The array received; with ``splits``, the pair (array, rows from each rank: int32).
    """
    output, received = alltoall_async(tensor, splits, name, process_set).wait()
    return output if splits is None else (output, received)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    named.submit(process_set, named.barrier(process_set)).wait()


# ---- handles ---------------------------------------------------------------------------------------------------------
def poll(handle: Handle[Any]) -> bool:
    """Whether the operation is done: :func:`synchronize` would not wait."""
    return handle.test()


def synchronize(handle: Handle[Any]) -> Any:
    """Waits for the operation and gives its result; raises what it met."""
    return handle.wait()
