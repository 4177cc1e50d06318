"""Operations that wait for their result, and the same in place. Autograd flows through those that are not in place.

The opening of `ringcomm.torch.asynchronous` says what ``name`` and ``process_set`` mean. All raise
HorovodInternalError: ``MismatchError`` (on every rank; the job goes on) if ranks disagree on dtype, shape, op or root
of a name, ``RankLeftError``, ``ShutDownError`` and ``PeerLostError``; and ValueError for arguments that make no
sense, tensors outside CPU memory, and a name that is in flight already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringcomm.ops import Average, chosen_op
from ringcomm.process_sets import global_process_set
from ringcomm.torch import autograd
from ringcomm.torch.asynchronous import operations
from ringcomm.torch.compression import Compression, parts_of

Tensor = torch.Tensor


def _reduce(
    function: Any,
    grouped: bool,
    tensors: Sequence[Tensor],
    name: str | None,
    compression: Any,
    op: Any,
    pre: float,
    post: float,
    process_set: Any,
    algorithm: str | None,
) -> list[Tensor]:
    wire, compressor = parts_of(compression)
    pairs = [compressor.compress(tensor) for tensor in tensors]
    how = autograd.Reduction(op, pre, post, process_set, wire, algorithm)
    reduced = function.apply(grouped, name, how, *(sent for sent, _ in pairs))
    results = reduced if grouped else [reduced]
    return [compressor.decompress(one, context) for one, (_, context) in zip(results, pairs, strict=True)]


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    algorithm: str | None = None,
) -> Tensor:
    """The reduction of every rank's tensor, on every rank.

    Args:
        tensor: the same shape and dtype on every rank; floating, integer or bool.
        average: deprecated: True for ``op=Average``, False for ``op=Sum``.
        name: of the operation.
        compression: what travels between hosts: ``Compression.none``, ``.fp16``, ``.bf16``, or a compressor of your own
            (`ringcomm.torch.compression`).
        op: ``Average`` (if None), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum`` (of floating tensors; each is
            one vector, also in a group). An average of integers is rounded toward zero.
        prescale_factor, postscale_factor: factors before and after the reduction.
        process_set: the ranks that take part.
        algorithm: what runs ("ring", "tree", ...), the same on every rank; None: chosen.

    Returns:
        A new tensor of the same shape and dtype.

    Raises:
        ValueError: if both ``op`` and ``average`` are given.
    """
    scales = prescale_factor, postscale_factor
    (result,) = _reduce(
        autograd.Allreduce, False, [tensor], name, compression, chosen_op(op, average), *scales, process_set, algorithm
    )
    return result


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    algorithm: str | None = None,
) -> list[Tensor]:
    """`allreduce` of several tensors that travel together."""
    scales = prescale_factor, postscale_factor
    return _reduce(
        autograd.Allreduce, True, tensors, name, compression, chosen_op(op, average), *scales, process_set, algorithm
    )


def allgather(
    tensor: Tensor, name: str | None = None, process_set: Any = global_process_set, algorithm: str | None = None
) -> Tensor:
    """Every rank's tensor, joined on the first dimension in the order of the ranks.

    Args:
        tensor: the same dtype and shape on every rank, but for the first dimension. Without dimensions it counts as
            one row.

    Returns:
        A new tensor whose first dimension is the sum of all ranks'.
    """
    return autograd.Allgather.apply(False, name, process_set, algorithm, tensor)


def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: Any = global_process_set,
    algorithm: str | None = None,
) -> list[Tensor]:
    """`allgather` of several tensors that travel together."""
    return list(autograd.Allgather.apply(True, name, process_set, algorithm, *tensors))


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
    algorithm: str | None = None,
) -> Tensor:
    """The root's values, as a new tensor on every rank.

    Args:
        tensor: the same shape and dtype on every rank.
        root_rank: a global rank, also within a process set.
    """
    return autograd.Broadcast.apply(root_rank, name, process_set, algorithm, tensor)


def alltoall(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: Any = global_process_set,
    algorithm: str | None = None,
) -> Any:
    """Sends rows of the first dimension to each rank, and joins what comes, in the order of the ranks.

    Args:
        tensor: the same dtype and shape on every rank, but for the first dimension.
        splits: how many rows go to each rank: a tensor or list of integers; rows past their sum go nowhere. None: the
            same number to each, which must come out even.

    Returns:
        The rows received; with ``splits`` given, also how many came from each rank (int32, or the dtype of the splits
        tensor).
    """
    return autograd.Alltoall.apply(splits, name, process_set, algorithm, tensor)


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    algorithm: str | None = None,
) -> Tensor:
    """Reduces as `allreduce` does, and gives each rank its share of the rows.

    Args:
        tensor: the same shape, of at least one dimension, and dtype on every rank.

    Returns:
        The first dimension divided by the number of ranks; where that leaves a rest, the first ranks have one row more.
    """
    scales = prescale_factor, postscale_factor
    (result,) = _reduce(autograd.Reducescatter, False, [tensor], name, compression, op, *scales, process_set, algorithm)
    return result


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    algorithm: str | None = None,
) -> list[Tensor]:
    """`reducescatter` of several tensors that travel together."""
    scales = prescale_factor, postscale_factor
    return _reduce(autograd.Reducescatter, True, tensors, name, compression, op, *scales, process_set, algorithm)


# ---- in place, which no gradient flows through, and without tensors --------------------------------------------------
allreduce_ = operations.allreduce_
grouped_allreduce_ = operations.grouped_allreduce_
broadcast_ = operations.broadcast_
barrier = operations.barrier
