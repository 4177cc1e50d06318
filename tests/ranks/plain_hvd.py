"""A reference for `ringcomm.torch`: torch's own optimizer, and gradients averaged between backward and step.

It sends whole tensors, pickled, in one collective a step. A script runs with it in place of `ringcomm.torch`.
"""

from __future__ import annotations

import contextlib
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


class PlainHvd(PlainRanks):
    """The names of `ringcomm.torch` that drawn scripts use."""

    def __init__(self, comm: ringcomm.Communicator) -> None:
        super().__init__(comm)
        self.optimizer_class = PlainOptimizer
        _current[:] = [self]

    def __reduce__(self) -> Any:
        return current, ()

    def class_of(self, base: type) -> Any:
        return type(base.__name__, (self.optimizer_class, base), {"_base": base})

    def allreduce(self, tensor: torch.Tensor, name: str | None = None, op: str = "Average") -> torch.Tensor:
        total = sum(self.gather(tensor.detach()))
        return total / self._size if op == self.Average else total

    def allgather(self, tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
        return torch.cat(self.gather(tensor))

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
        """The same object, of a subclass of its class. `others` change how gradients are sent and not their values."""
        optimizer.__class__ = self.class_of(type(optimizer))
        vars(optimizer).pop("step", None)
        made: Any = optimizer
        made.hvd, made.op, made.ranks = self, op, (process_set or self.global_process_set).ranks
        made.reduces = True
        made.begin()
        return made


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
        """Changes when gradients are sent and not their values."""

    @staticmethod
    def base_of(optimizer: Any) -> Any:
        return getattr(optimizer, "_base", type(optimizer))

    def parameters(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def begin(self) -> None:
        """For mutants."""

    def synchronize(self) -> None:
        """Every gradient becomes the mean (or sum) over the ranks. Where no rank has a gradient it stays None."""
        parameters = self.parameters()
        mine = (self.hvd.rank(), [None if p.grad is None else p.grad.detach() for p in parameters])
        parts = [gradients for rank, gradients in self.hvd.gather(mine) if rank in self.ranks]
        if self.hvd.rank() in self.ranks:
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
