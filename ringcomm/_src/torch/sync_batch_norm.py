"""Batch normalisation over the batches of all ranks, as autograd functions over collectives."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional
from torch.nn.modules.batchnorm import _BatchNorm

from ringcomm._src.base.ops import Sum
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.torch.asynchronous import operations
from ringcomm._src.torch.autograd import Allreduce

Tensor = torch.Tensor


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation by mean and variance over the batches of all ranks.

    Replaces ``torch.nn.BatchNorm1d`` to ``3d``. Batches may have different sizes, or be empty.
    Gradients flow through the shared statistics. Gradients of weight and bias are this rank's part,
    which DistributedOptimizer reduces. In evaluation, on a single rank, and on ranks outside the
    process set, it is ordinary batch normalisation.

    Parameters
    ----------
    num_features : int
        Number of channels: C of inputs of shape (N, C, ...).
    eps : float
        Added to the variance.
    momentum : float | None
        Weight of a new batch in the running statistics. None: the running statistics are the plain
        mean over all batches.
    affine : bool
        Learn weight and bias.
    track_running_stats : bool
        Keep running statistics for evaluation.
    process_set : ProcessSet
        The ranks that share statistics. They must run the same layers, in the same order.

    Raises
    ------
    ValueError
        The input has less than two dimensions, or the batches of all ranks together have less than
        two values per channel.

    Examples
    --------
    >>> layer = hvd.SyncBatchNorm(1)
    >>> _ = layer(torch.full((4, 1), float(rank)))  # zeros on rank 0, ones on rank 1
    >>> round(layer.running_mean.item(), 3)  # 0.1 times the mean over both ranks
    0.05
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: Any = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm takes inputs of two or more dimensions, not of {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        by_batch = self.training or self.running_mean is None
        if not by_batch or not self.process_set.included() or self.process_set.size() == 1:
            return super().forward(input)
        if torch._C._are_functorch_transforms_active():
            count = _shared_count(input, self.process_set)
            output, mean, variance = _by_collectives(input, self.weight, self.bias, count, self.eps, self.process_set)
        else:
            output = None
            mean, variance, count = _shared_statistics(input, self.process_set)
        if self.training and self.track_running_stats:
            self._update_running_statistics(mean, variance * (count / (count - 1)))
        if output is not None:
            return output.to(input.dtype)
        return _Normalise.apply(input, self.weight, self.bias, mean, variance, count, self.eps, self.process_set)

    @torch.no_grad()
    def _update_running_statistics(self, mean: Tensor, unbiased: Tensor) -> None:
        assert self.num_batches_tracked is not None and self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked.add_(1)
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


def _batch_dims(input: Tensor) -> list[int]:
    """Returns all dimensions except the channels'."""
    return [dim for dim in range(input.dim()) if dim != 1]


def _per_channel(values: Tensor, input: Tensor) -> Tensor:
    """Returns values per channel in a shape that broadcasts over the input."""
    return values.to(input.dtype).view(1, -1, *[1] * (input.dim() - 2))


def _checked(count: int) -> int:
    if count < 2:
        raise ValueError(f"SyncBatchNorm needs at least two values per channel over all ranks, not {count}")
    return count


def _shared_count(input: Tensor, process_set: Any) -> int:
    mine = torch.tensor([input.numel() // max(input.size(1), 1)])
    return _checked(int(Allreduce.run(False, None, Reduction(Sum, 1.0, 1.0, process_set), mine)))


@torch.no_grad()
def _shared_statistics(input: Tensor, process_set: Any) -> tuple[Tensor, Tensor, int]:
    """Returns mean and variance (float64) and number of values per channel, over all batches.

    Ranks exchange count, mean and squared deviations. The formula of Chan, Golub and LeVeque (1979)
    combines them; it loses no digits if the mean is large.
    """
    channels, mine = input.size(1), input.numel() // max(input.size(1), 1)
    if mine:
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        variance, mean = torch.var_mean(wide, _batch_dims(input), correction=0)
        row = torch.cat([mean.new_full((1,), mine, dtype=torch.float64), mean.double(), variance.double() * mine])
    else:
        row = torch.zeros(1 + 2 * channels, dtype=torch.float64, device=input.device)
    rows = operations.allgather_async(row[None], "sync_batch_norm.statistics", process_set).wait()
    counts, means, deviations = rows.split([1, channels, channels], 1)
    count = _checked(int(counts.sum()))
    mean = (counts * means).sum(0) / count
    return mean, (deviations + counts * (means - mean) ** 2).sum(0) / count, count


class _Normalise(torch.autograd.Function):
    """(input - mean) / sqrt(variance + eps) * weight + bias, with statistics over all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: int,
        eps: float,
        process_set: Any,
    ) -> Tensor:
        inverse = torch.rsqrt(variance + eps)
        ctx.save_for_backward(input, weight, mean, inverse)
        ctx.count, ctx.eps, ctx.process_set = count, eps, process_set
        dtype = torch.promote_types(input.dtype, torch.float32) if weight is None else weight.dtype
        return torch.nn.functional.batch_norm(input, mean.to(dtype), variance.to(dtype), weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        input, weight, mean, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return _differentiable_backward(ctx, input, weight, gradient)
        dtype = torch.promote_types(input.dtype, torch.float32)
        wide, given = input.to(dtype), gradient.to(dtype)
        normal = (wide - _per_channel(mean, wide)) * _per_channel(inverse, wide)
        batch = _batch_dims(input)
        sums = torch.stack([given.sum(batch), (given * normal).sum(batch)]).double()
        of_bias, of_weight = sums.clone()
        to_input = None
        if ctx.needs_input_grad[0]:
            operations.allreduce_(sums, name="sync_batch_norm.gradients", op=Sum, process_set=ctx.process_set)
            through_mean, through_variance = (_per_channel(total / ctx.count, given) for total in sums)
            scale = inverse if weight is None else inverse * weight
            to_input = (given - through_mean - normal * through_variance) * _per_channel(scale, given)
            to_input = to_input.to(input.dtype)
        return (
            to_input,
            of_weight.to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None,
            of_bias.to(weight.dtype) if weight is not None and ctx.needs_input_grad[2] else None,
            *(None,) * 5,
        )


def _by_collectives(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, count: int, eps: float, process_set: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns output, mean and variance; autograd and torch.func can differentiate them."""
    how, batch = Reduction(Sum, 1.0, 1.0, process_set), _batch_dims(input)
    wide = input.to(torch.promote_types(input.dtype, torch.float32))
    mean = Allreduce.run(False, None, how, wide.sum(batch).double()) / count
    centred = wide - _per_channel(mean, wide)
    variance = Allreduce.run(False, None, how, (centred**2).sum(batch).double()) / count
    output = centred * _per_channel(torch.rsqrt(variance + eps), wide)
    if weight is not None:
        output = output * _per_channel(weight, wide)
    return (output if bias is None else output + _per_channel(bias, wide)), mean, variance


def _differentiable_backward(ctx: Any, input: Tensor, weight: Tensor | None, gradient: Tensor) -> Any:
    """Returns autograd's gradients, with statistics computed by differentiable collectives."""
    bias = input.new_zeros(input.size(1), dtype=torch.float64).requires_grad_()
    output, *_ = _by_collectives(input, weight, bias, ctx.count, ctx.eps, ctx.process_set)
    wanted = {index: tensor for index, tensor in enumerate((input, weight, bias)) if ctx.needs_input_grad[index]}
    given = [tensor for tensor in wanted.values() if tensor is not None]
    found = dict(
        zip(wanted, torch.autograd.grad(output, given, gradient.to(output.dtype), create_graph=True), strict=True)
    )
    if weight is not None and 2 in found:
        found[2] = found[2].to(weight.dtype)
    return *(found.get(index) for index in range(3)), *(None,) * 5
