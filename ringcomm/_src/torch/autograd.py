"""Collectives that autograd can differentiate, to any order.

`with_gradients` holds the public operations of ``ringcomm.torch``; the classes are the autograd
functions behind them. Reductions and all-gathers take any number of tensors; ``grouped``
distinguishes a group of one tensor from a single tensor.

The gradients are Horovod's. The gradient of an all-reduce by Sum or Average is reduced by the same
op. Gradients of all-gathers and broadcasts are averaged over the ranks. The gradients of a
reduce-scatter are gathered, and for a Sum multiplied by the number of ranks. Min, Max and Product
have their true derivatives: the gradients of all ranks are summed, and each rank multiplies the sum
by the derivative of the result with respect to its tensor. If several ranks have the minimum or
maximum, they share the gradient equally.

Backward must reach the collectives in the same order on all ranks, as it does if all ranks run the
same model. Data sent to a rank that has joined is lost, so the gradient of this data is zero.

Every backward consists of these collectives, so it can be differentiated again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ringcomm._src.arrays.rows import even_part
from ringcomm._src.base.errors import UnsupportedError
from ringcomm._src.base.ops import Adasum, Average, Max, Min, Product, Sum
from ringcomm._src.compression.compression import reduce_compressed
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.torch.asynchronous import Operations, check, operations
from ringcomm._src.torch.compression import parts_of

Tensor = torch.Tensor


class Collective(torch.autograd.Function):
    """An autograd function around a collective. Call ``run`` instead of ``apply``.

    Only the transforms of torch.func need a separate ``setup_context``. ``run`` avoids it if no
    transform is active, because with a ``setup_context`` ``apply`` takes 40 us longer.
    """

    _eager: type[torch.autograd.Function]

    def __init_subclass__(cls) -> None:
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = cls.forward(*inputs)
            cls.setup_context(ctx, inputs, output)
            return output

        if "forward" in vars(cls):
            methods = {"forward": staticmethod(forward), "backward": staticmethod(cls.backward)}
            cls._eager = type(cls.__name__, (torch.autograd.Function,), methods)

    @classmethod
    def run(cls, *inputs: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*inputs)
        if not torch.is_grad_enabled() and forward_ad._current_level < 0:
            return cls.forward(*inputs)
        return cls._eager.apply(*inputs)


def _zero_rows(like: Tensor, rows: int) -> Tensor:
    """Returns zeros: the gradient of rows that were sent to a rank that has joined."""
    return like.new_zeros((rows, *like.shape[1:]))


def _insert_zeros(gathered: Tensor, rows: int, present: Sequence[int], size: int) -> Tensor:
    """Returns the gathered shares of the ranks `present`, and zeros for the ranks that have joined."""
    shares = [even_part(rows, size, rank) for rank in range(size)]
    pieces = iter(torch.split(gathered, [shares[rank] for rank in present]))
    return torch.cat([next(pieces) if rank in present else _zero_rows(gathered, shares[rank]) for rank in range(size)])


# ---- derivatives of reductions ---------------------------------------------------------------------------------------
def _shares(how: Reduction, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the reduction's derivative, by element, with respect to this rank's tensor."""
    if how.op == Product:
        return _products_of_others(how, tensors)
    op = how.op if how.prescale >= 0 else (Min if how.op == Max else Max)
    given = [tensor.detach() for tensor in tensors]
    extremes = operations.grouped_allreduce_async(given, op=op, process_set=how.process_set).wait()
    holds = [
        ((tensor == extreme) | (tensor.isnan() & extreme.isnan())).to(tensor.dtype)
        for tensor, extreme in zip(given, extremes, strict=True)
    ]
    holders = operations.grouped_allreduce_async(holds, op=Sum, process_set=how.process_set).wait()
    factor = how.prescale * how.postscale
    return [mine * factor / count.clamp(min=1) for mine, count in zip(holds, holders, strict=True)]


def _products_of_others(how: Reduction, tensors: Sequence[Tensor]) -> list[Tensor]:
    me = how.process_set.rank()
    ranks = operations.allgather_async(torch.tensor([me]), process_set=how.process_set).wait().tolist()
    rows = Allgather.run(Sum, True, None, how.process_set, None, *(tensor[None] for tensor in tensors))
    mine = ranks.index(me)
    factor = how.postscale * how.prescale ** len(ranks)
    return [torch.cat([rows_of_all[:mine], rows_of_all[mine + 1 :]]).prod(0).conj() * factor for rows_of_all in rows]


class Allreduce(Collective):
    """Allreduce. The gradient is reduced as the tensor was, for sums, averages and Adasum."""

    @staticmethod
    def forward(grouped: bool, name: str | None, reduction: Reduction, *tensors: Tensor) -> Any:
        return operations.run_allreduce(grouped, name, reduction, *tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, ctx.reduction, *tensors = inputs
        _keep(ctx, tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        how = ctx.reduction
        if how.op == Adasum and torch.is_grad_enabled():
            raise UnsupportedError("op=Adasum has no second derivative: call backward() without create_graph=True")
        if how.op not in (Sum, Average, Adasum):
            how = how._replace(op=Sum, prescale=1.0, postscale=1.0)
        flowing = [gradients[index] for index in ctx.floating]
        reduced = Allreduce.run(True, None, how, *flowing) if flowing else []
        return None, None, None, *_through(ctx, reduced)


class Reducescatter(Collective):
    """Reducescatter. Gradients are gathered, and scaled; for a sum, also by the number of ranks."""

    @staticmethod
    def forward(grouped: bool, name: str | None, reduction: Reduction, *tensors: Tensor) -> Any:
        return operations.run_reducescatter(grouped, name, reduction, *tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, ctx.reduction, *tensors = inputs
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        _keep(ctx, tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        how, process_set = ctx.reduction, ctx.reduction.process_set
        linear = how.op in (Sum, Average)
        factor = how.prescale * how.postscale if linear else 1.0
        factor *= process_set.size() if how.op == Sum else 1
        flowing = [gradients[index] if factor == 1 else gradients[index] * factor for index in ctx.floating]
        wanted = [ctx.rows[index] for index in ctx.floating]
        # The op applies if this gradient is differentiated again. As in Allgather, it is an average
        # for gradients of sums and averages. For true derivatives it is a sum.
        gathered = Allgather.run(Average if linear else Sum, True, None, process_set, None, *flowing) if flowing else ()
        if [tensor.shape[0] for tensor in gathered] != wanted:
            me, size = process_set.rank(), process_set.size()
            present = operations.allgather_async(torch.tensor([me]), process_set=process_set).wait().tolist()
            gathered = [
                _insert_zeros(tensor, rows, present, size) for tensor, rows in zip(gathered, wanted, strict=True)
            ]
        return None, None, None, *_through(ctx, gathered)


def _keep(ctx: Any, tensors: Sequence[Tensor]) -> None:
    """Stores which tensors can have gradients, and their values if the reduction is not linear."""
    ctx.floating = [i for i, tensor in enumerate(tensors) if tensor.is_floating_point() or tensor.is_complex()]
    ctx.count = len(tensors)
    if ctx.reduction.op not in (Sum, Average, Adasum):
        ctx.save_for_backward(*(tensors[index] for index in ctx.floating))


def _through(ctx: Any, gradients: Sequence[Tensor]) -> list[Tensor | None]:
    """Returns the gradients of the tensors, given the reduced gradients of the outputs."""
    if ctx.floating and ctx.reduction.op not in (Sum, Average, Adasum):
        gradients = [
            gradient * share
            for gradient, share in zip(gradients, _shares(ctx.reduction, ctx.saved_tensors), strict=True)
        ]
    found = dict(zip(ctx.floating, gradients, strict=True))
    return [found.get(index) for index in range(ctx.count)]


# ---- collectives that move data --------------------------------------------------------------------------------------
class Allgather(Collective):
    """Allgather. Each rank gets the averaged (or `op`-reduced) gradient of the rows it sent."""

    @staticmethod
    def forward(op: Any, grouped: bool, name: str | None, process_set: Any, algorithm: Any, *tensors: Tensor) -> Any:
        return operations.run_allgather(grouped, name, process_set, algorithm, *tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.op, _, _, ctx.process_set, _, *tensors = inputs
        ctx.shapes = [tensor.shape for tensor in tensors]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return *(None,) * 5, *OwnRows.run(ctx.op, ctx.process_set, ctx.shapes, *gradients)


class OwnRows(Collective):
    """The backward of Allgather: each rank takes its rows of the reduced gradients."""

    @staticmethod
    def forward(op: Any, process_set: Any, shapes: Sequence[torch.Size], *gradients: Tensor) -> Any:
        mine, me = [shape[0] if shape else 1 for shape in shapes], process_set.rank()
        rows = operations.allgather_async(torch.tensor([[me, *mine]], dtype=torch.int64), process_set=process_set)
        reduced = operations.grouped_allreduce_async(gradients, op=op, process_set=process_set).wait()
        rows_of_all = rows.wait()  # rows of all ranks except those that have joined
        first = rows_of_all[rows_of_all[:, 0] < me, 1:].sum(0).tolist()
        return tuple(
            tensor.narrow(0, begin, count).reshape(shape).clone()
            for tensor, begin, count, shape in zip(reduced, first, mine, shapes, strict=True)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.op, ctx.process_set, *_ = inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, None, *Allgather.run(ctx.op, True, None, ctx.process_set, None, *gradients)


class Broadcast(Collective):
    """Broadcast. The root's gradient is the average over the ranks; on other ranks it is zero."""

    @staticmethod
    def forward(root_rank: int, name: str | None, process_set: Any, algorithm: Any, tensor: Tensor) -> Any:
        return operations.run_broadcast(root_rank, name, process_set, algorithm, tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.root_rank, _, ctx.process_set, *_ = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None, None, None, MeanAtRoot.run(ctx.root_rank, ctx.process_set, gradient)


class MeanAtRoot(Collective):
    """The backward of Broadcast: an average at the root. Its own backward is Broadcast."""

    @staticmethod
    def forward(root_rank: int, process_set: Any, gradient: Tensor) -> Any:
        mean = operations.allreduce_async(gradient, op=Average, process_set=process_set).wait()
        is_root = process_set.rank() == process_set.ranks.index(root_rank)
        return mean if is_root else torch.zeros_like(mean)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.root_rank, ctx.process_set, _ = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None, Broadcast.run(ctx.root_rank, None, ctx.process_set, None, gradient)


class Alltoall(Collective):
    """Alltoall. The gradient's rows return to the ranks that sent the tensor's rows.

    The output is a pair: the rows, and the number of rows from each rank.
    """

    @staticmethod
    def forward(splits: Any, name: str | None, process_set: Any, algorithm: Any, tensor: Tensor) -> Any:
        return operations.alltoall_async(tensor, splits, name, process_set, algorithm).wait()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        splits, _, ctx.process_set, _, tensor = inputs
        size, ctx.rows, ctx.received = ctx.process_set.size(), tensor.shape[0], output[1].tolist()
        ctx.sent = [ctx.rows // size] * size if splits is None else [int(rows) for rows in splits]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> Any:
        back, counts = Alltoall.run(ctx.received, None, ctx.process_set, None, gradient)
        returned = counts.tolist()
        if returned != ctx.sent:
            parts = zip(torch.split(back, returned), returned, ctx.sent, strict=True)
            back = torch.cat([part if rows == sent else _zero_rows(back, sent) for part, rows, sent in parts])
        if ctx.rows > back.shape[0]:  # rows that the splits did not cover
            back = torch.cat([back, _zero_rows(back, ctx.rows - back.shape[0])])
        return None, None, None, None, back


def _alltoall(splits: Any, *arguments: Any) -> Any:
    output, received = Alltoall.run(splits, *arguments)
    return output if splits is None else (output, received)


class DifferentiableOperations(Operations):
    """The named operations, differentiable by autograd, also with compressors written in Python.

    Autograd records the blocking forms that return new tensors. It does not record in-place and
    non-blocking forms.
    """

    run_allreduce: Any = staticmethod(Allreduce.run)
    run_reducescatter: Any = staticmethod(Reducescatter.run)
    run_allgather: Any = staticmethod(functools.partial(Allgather.run, Average))
    run_broadcast: Any = staticmethod(Broadcast.run)
    run_alltoall: Any = staticmethod(_alltoall)

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

        results = reduce_compressed(compressor, tensors, reduce)
        return results if grouped else results[0]


with_gradients = DifferentiableOperations(check)
