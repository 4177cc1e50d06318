"""Collectives that gradients flow through.

The gradients are Horovod's: what flows back through a collective is averaged over the ranks (through a sum of
reducescatter: summed), so that ranks which each have a loss of their own train on the mean of these losses. All take
any number of tensors; ``grouped`` tells a group of one from a single tensor. Backward must reach them in the same
order on all ranks, as it does where all ranks run the same model. What went to a rank that has joined is lost, so its
gradient is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringcomm.compression import compressed
from ringcomm.ops import Average, Sum, chosen_op
from ringcomm.reductions import Reduction
from ringcomm.rows import part
from ringcomm.torch.asynchronous import Operations, check, operations
from ringcomm.torch.compression import parts_of

Tensor = torch.Tensor


def _mean(gradients: Sequence[Tensor], process_set: Any) -> Any:
    return operations.grouped_allreduce_async(gradients, op=Average, process_set=process_set)


def _lost(like: Tensor, rows: int) -> Tensor:
    """What rows become that went to a rank that has joined."""
    return like.new_zeros((rows, *like.shape[1:]))


def _spread(gathered: Tensor, rows: int, here: Sequence[int], size: int) -> Tensor:
    """The shares of the ranks `here`, which are gathered, and nothing of the others'."""
    shares = [part(rows, size, rank) for rank in range(size)]
    pieces = iter(torch.split(gathered, [shares[rank] for rank in here]))
    return torch.cat([next(pieces) if rank in here else _lost(gathered, shares[rank]) for rank in range(size)])


class Allreduce(torch.autograd.Function):
    """The gradient is reduced as the tensor was."""

    @staticmethod
    def forward(ctx: Any, grouped: bool, name: str | None, reduction: Reduction, *tensors: Tensor) -> Any:
        ctx.reduction = reduction
        return operations.run_allreduce(grouped, name, reduction, *tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, None, *operations.run_allreduce(True, None, ctx.reduction, *gradients)


class Allgather(torch.autograd.Function):
    """The gradient is averaged; each rank takes the rows that it gave."""

    @staticmethod
    def forward(ctx: Any, grouped: bool, name: str | None, process_set: Any, algorithm: Any, *tensors: Tensor) -> Any:
        result = operations.run_allgather(grouped, name, process_set, algorithm, *tensors)
        ctx.process_set, ctx.shapes = process_set, [tensor.shape for tensor in tensors]
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        mine, me = [shape[0] if shape else 1 for shape in ctx.shapes], ctx.process_set.rank()
        rows = operations.allgather_async(torch.tensor([[me, *mine]], dtype=torch.int64), process_set=ctx.process_set)
        means = _mean(gradients, ctx.process_set).wait()
        of_all = rows.wait()  # but those that have joined
        first = of_all[of_all[:, 0] < me, 1:].sum(0).tolist()
        parts = [
            mean.narrow(0, begin, count).reshape(shape)
            for mean, begin, count, shape in zip(means, first, mine, ctx.shapes, strict=True)
        ]
        return None, None, None, None, *parts


class Broadcast(torch.autograd.Function):
    """The gradient is averaged and goes to the root; elsewhere it is zero."""

    @staticmethod
    def forward(ctx: Any, root_rank: int, name: str | None, process_set: Any, algorithm: Any, tensor: Tensor) -> Any:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return operations.run_broadcast(root_rank, name, process_set, algorithm, tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (mean,) = _mean([gradient], ctx.process_set).wait()
        here = ctx.process_set.rank() == ctx.process_set.ranks.index(ctx.root_rank)
        return None, None, None, None, mean if here else torch.zeros_like(mean)


class Alltoall(torch.autograd.Function):
    """The gradient's rows go back where the tensor's rows came from."""

    @staticmethod
    def forward(ctx: Any, splits: Any, name: str | None, process_set: Any, algorithm: Any, tensor: Tensor) -> Any:
        output, ctx.received = operations.alltoall_async(tensor, splits, name, process_set, algorithm).wait()
        ctx.process_set, ctx.rows, size = process_set, tensor.shape[0], process_set.size()
        ctx.sent = [tensor.shape[0] // size] * size if splits is None else [int(rows) for rows in splits]
        if splits is None:
            return output
        ctx.mark_non_differentiable(ctx.received)
        return output, ctx.received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> Any:
        back, counts = operations.alltoall_async(gradient, ctx.received, process_set=ctx.process_set).wait()
        returned = counts.tolist()
        if returned != ctx.sent:
            parts = zip(torch.split(back, returned), returned, ctx.sent, strict=True)
            back = torch.cat([part if rows == sent else _lost(back, sent) for part, rows, sent in parts])
        if ctx.rows > back.shape[0]:  # rows that the splits left out
            back = torch.cat([back, _lost(back, ctx.rows - back.shape[0])])
        return None, None, None, None, back


class Reducescatter(torch.autograd.Function):
    """The gradients are gathered, and scaled: by the factors given, and for a sum by the number of ranks."""

    @staticmethod
    def forward(ctx: Any, grouped: bool, name: str | None, reduction: Reduction, *tensors: Tensor) -> Any:
        ctx.process_set = reduction.process_set
        size = reduction.process_set.size() if reduction.op == Sum else 1
        ctx.factor = reduction.prescale * reduction.postscale * size
        result = operations.run_reducescatter(grouped, name, reduction, *tensors)
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        scaled = gradients if ctx.factor == 1 else [gradient * ctx.factor for gradient in gradients]
        whole = operations.grouped_allgather_async(scaled, process_set=ctx.process_set).wait()
        if [one.shape[0] for one in whole] != ctx.rows:
            me, size = ctx.process_set.rank(), ctx.process_set.size()
            here = operations.allgather_async(torch.tensor([me]), process_set=ctx.process_set).wait().tolist()
            whole = [_spread(one, rows, here, size) for one, rows in zip(whole, ctx.rows, strict=True)]
        return None, None, None, *whole


class DifferentiableOperations(Operations):
    """As on arrays, but that gradients flow through those that give new tensors, and that compressors may be written in
    Python. In place and in the background autograd sees nothing of them."""

    run_allreduce = staticmethod(Allreduce.apply)
    run_reducescatter = staticmethod(Reducescatter.apply)
    run_allgather = staticmethod(Allgather.apply)
    run_broadcast = staticmethod(Broadcast.apply)
    run_alltoall = staticmethod(Alltoall.apply)

    def _compressed(
        self,
        run: Callable[..., Any],
        grouped: bool,
        tensors: Sequence[Tensor],
        name: str | None,
        compression: Any,
        how: Reduction,
    ) -> Any:
        wire, compressor = parts_of(compression)

        def reduce(sent: Sequence[Tensor]) -> Sequence[Tensor]:
            results = run(grouped, name, how._replace(wire=wire), *sent)
            return results if grouped else [results]

        results = compressed(compressor, tensors, reduce)
        return results if grouped else results[0]


with_gradients = DifferentiableOperations(check)


# ---- Horovod's names, with the arguments of its `apply` --------------------------------------------------------------
def _named_as_in_horovod(name: str, function: Any, arranged: Callable[..., tuple[Any, ...]]) -> Any:
    def apply(*arguments: Any) -> Any:
        return function.apply(*arranged(*arguments))

    return type(name, (function,), {"apply": staticmethod(apply), "__doc__": function.__doc__, "__module__": __name__})


HorovodAllreduce = _named_as_in_horovod(
    "HorovodAllreduce",
    Allreduce,
    lambda tensor, average, name, op, *how: (False, name, Reduction(chosen_op(op, average), *how), tensor),
)
HorovodGroupedAllreduce = _named_as_in_horovod(
    "HorovodGroupedAllreduce",
    Allreduce,
    lambda average, name, op, pre, post, process_set, *tensors: (
        *(True, name, Reduction(chosen_op(op, average), pre, post, process_set)),
        *tensors,
    ),
)
HorovodAllgather = _named_as_in_horovod(
    "HorovodAllgather", Allgather, lambda tensor, name, process_set: (False, name, process_set, None, tensor)
)
HorovodGroupedAllgather = _named_as_in_horovod(
    "HorovodGroupedAllgather", Allgather, lambda name, process_set, *tensors: (True, name, process_set, None, *tensors)
)
HorovodBroadcast = _named_as_in_horovod(
    "HorovodBroadcast", Broadcast, lambda tensor, root, name, process_set: (root, name, process_set, None, tensor)
)
HorovodAlltoall = _named_as_in_horovod(
    "HorovodAlltoall", Alltoall, lambda tensor, splits, name, process_set: (splits, name, process_set, None, tensor)
)
HorovodReducescatter = _named_as_in_horovod(
    "HorovodReducescatter",
    Reducescatter,
    lambda tensor, name, op, process_set, pre, post: (False, name, Reduction(op, pre, post, process_set), tensor),
)
HorovodGroupedReducescatter = _named_as_in_horovod(
    "HorovodGroupedReducescatter",
    Reducescatter,
    lambda name, op, process_set, pre, post, *tensors: (True, name, Reduction(op, pre, post, process_set), *tensors),
)
