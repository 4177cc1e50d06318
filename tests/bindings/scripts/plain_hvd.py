"""A reference for `ringcomm.torch`: torch's optimizer, with gradients averaged before step.

It sends complete tensors, pickled, in one collective per step. A script runs with it in place of
`ringcomm.torch`.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from script_parts import PlainRanks, PlainSet

import ringcomm

_current: list[PlainHvd] = []


def current() -> PlainHvd:
    return _current[-1]


def copied(base: type, hvd: PlainHvd, state: dict[str, Any]) -> Any:
    made = hvd.class_of(base)
    made = made.__new__(made)
    vars(made).update(state)
    return made


class Reduced(torch.autograd.Function):
    """A sum over the ranks. Its gradient is the sum over the ranks divided by `parts`."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, hvd: PlainHvd, parts: int) -> torch.Tensor:
        ctx.hvd, ctx.parts = hvd, parts
        return torch.stack(hvd.gather(tensor.detach())).sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return Reduced.apply(gradients[0] / ctx.parts, ctx.hvd, 1), None, None


class PlainBatchNorm(torch.nn.BatchNorm1d):
    """Batch normalisation with the statistics of all ranks' rows."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(input)
        hvd = current()
        rows = sum(hvd.gather(len(input)))
        mean = hvd.total(input.sum(0)) / rows
        variance = hvd.total(((input - mean) ** 2).sum(0)) / rows
        with torch.no_grad():
            assert self.running_mean is not None and self.running_var is not None
            assert self.momentum is not None and self.num_batches_tracked is not None
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * rows / (rows - 1), self.momentum)
        return (input - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class PlainHvd(PlainRanks):
    """The names of `ringcomm.torch` that drawn scripts use."""

    Compression = types.SimpleNamespace(none=None, fp16=None, bf16=None)
    SyncBatchNorm = PlainBatchNorm
    gather = torch.compiler.disable(PlainRanks.gather)

    def __init__(self, comm: ringcomm.Communicator) -> None:
        super().__init__(comm)
        self.optimizer_class = PlainOptimizer
        _current[:] = [self]

    def __reduce__(self) -> Any:
        return current, ()

    def class_of(self, base: type) -> Any:
        return type(base.__name__, (self.optimizer_class, base), {"_base": base})

    def allreduce(self, tensor: torch.Tensor, name: str | None = None, op: str = "Average") -> torch.Tensor:
        total = self.total(tensor)
        return total / self._size if op == self.Average else total

    def total(self, tensor: torch.Tensor, parts: int = 1) -> torch.Tensor:
        return Reduced.apply(tensor, self, parts)  # type: ignore[no-any-return]

    def allgather(self, tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
        rows = self.gather(len(tensor))
        parts = [tensor.new_zeros((count, *tensor.shape[1:])) for count in rows]
        parts[self._rank] = tensor
        return self.total(torch.cat(parts), self._size)

    def broadcast(self, tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
        return self.total(tensor if self._rank == root_rank else tensor * 0, self._size)

    def broadcast_parameters(self, params: Any, root_rank: int = 0) -> None:
        tensors = dict(params)
        values = self.gather({name: tensor.detach().clone() for name, tensor in tensors.items()})[root_rank]
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.detach().copy_(values[name])

    def broadcast_optimizer_state(self, optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
        PlainOptimizer.base_of(optimizer).load_state_dict(optimizer, self.gather(optimizer.state_dict())[root_rank])

    def DistributedOptimizer(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Any = None,
        op: str = "Average",
        process_set: PlainSet | None = None,
        **others: Any,
    ) -> Any:
        """Returns the same object as an instance of a subclass.

        `others` affect how gradients are sent, not their values.
        """
        optimizer.__class__ = self.class_of(type(optimizer))
        vars(optimizer).pop("step", None)
        made: Any = optimizer
        made.hvd, made.op, made.ranks = self, op, (process_set or self.global_process_set).ranks
        made.reduces = True
        made.begin()
        return made

    def LocalSGD(self, optimizer: torch.optim.Optimizer, named_parameters: Any, every: int) -> Any:
        base: Any = getattr(optimizer, "_base", type(optimizer))
        parameters = dict(named_parameters)
        steps = 0

        def average() -> None:
            with torch.no_grad():
                for p in parameters.values():
                    p.copy_(sum(self.gather(p.detach().clone())) / self._size)

        def step(self: Any, closure: Any = None) -> None:
            nonlocal steps
            base.step(self)
            steps += 1
            if steps % every == 0:
                average()

        self.broadcast_parameters(parameters)
        optimizer.__class__ = type(base.__name__, (base,), {"step": step, "finish": lambda self: average()})
        vars(optimizer).pop("step", None)
        return optimizer


class PlainOptimizer:
    hvd: PlainHvd
    op: str
    ranks: list[int]
    reduces: bool
    param_groups: Any
    _base: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copied, (self._base, self.hvd, vars(self))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Does nothing: it changes when gradients are sent, not their values."""

    @staticmethod
    def base_of(optimizer: Any) -> Any:
        return getattr(optimizer, "_base", type(optimizer))

    def parameters(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def begin(self) -> None:
        """Does nothing. Mutants override it."""

    def synchronize(self) -> None:
        """Replaces each gradient by the mean (or sum) over ranks; None if no rank has one."""
        parameters = self.parameters()
        mine = (self.hvd.rank(), [None if p.grad is None else p.grad.detach() for p in parameters])
        parts = [gradients for rank, gradients in self.hvd.gather(mine) if rank in self.ranks]
        # on a single rank, gradients that share memory continue to share it
        if self.hvd.rank() in self.ranks and len(self.ranks) > 1:
            for p, *gradients in zip(parameters, *parts, strict=True):
                given = [one for one in gradients if one is not None]
                if given:
                    total = sum(given[1:], start=given[0])
                    p.grad = total / len(self.ranks) if self.op == self.hvd.Average else total.clone()

    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **named: Any) -> Any:
        if grad_scaler is not None:
            return self._scaled_step(grad_scaler)
        if closure is None:
            if self.reduces:
                self.synchronize()
            return self._base.step(self)

        def reduced() -> Any:
            loss = closure()
            self.synchronize()
            return sum(self.hvd.gather(loss.detach())) / self.hvd.size()

        return self._base.step(self, reduced)

    step.hooked = True  # type: ignore[attr-defined]

    _step_supports_amp_scaling = True

    def _scaled_step(self, scaler: Any) -> Any:
        state = scaler._per_optimizer_states[id(self)]
        before = state["stage"].name == "UNSCALED"
        overflow = before and any(one.item() for one in state["found_inf_per_device"].values())
        if self.reduces:
            self.synchronize()
        if not before:
            scaler.unscale_(self)
        overflow = overflow or any(one.item() for one in state["found_inf_per_device"].values())
        found = torch.tensor(float(any(self.hvd.gather(overflow))))
        state["found_inf_per_device"] = {found.device: found}
        return None if found else self._base.step(self)

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        self.reduces = False
        try:
            yield
        finally:
            self.reduces = True
