"""The optimizer of ``DistributedOptimizer(overlap_forward=True)``.

After ``step()`` buckets of gradients may still be in flight. The first use of a parameter in the
next forward pass waits for its bucket only, and steps its parameters. The result is bit for bit
that of a step on all parameters, because the supported optimizers update each parameter
independently, and use the hyperparameters that the groups had at ``step()``.

A step waits for all gradients if anything needs them all: a closure, a GradScaler,
``synchronize()``, hooks of ``step()``, sparse gradients, a comparison of replicas.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from ringcomm._src.base.errors import HorovodInternalError
from ringcomm._src.process import exits
from ringcomm._src.torch.overlap.parameter import watch
from ringcomm._src.torch.overlap.step import StepInFlight
from ringcomm._src.torch.reducing_optimizer import _DistributedOptimizer
from ringcomm._src.torch.wrapped import delegating_step

# Optimizers that update each parameter independently of the others.
SEPARABLE = tuple(
    getattr(torch.optim, name)
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD")
)

_in_flight: weakref.WeakSet[StepInFlight] = weakref.WeakSet()


def check_separable(optimizer: torch.optim.Optimizer, named: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Raises ValueError unless the optimizer's step may be taken for some parameters at a time."""
    steps = {inspect.unwrap(kind.step) for kind in SEPARABLE}  # torch wraps a class's step in its first instance
    if not isinstance(optimizer, SEPARABLE) or inspect.unwrap(type(optimizer).step) not in steps:
        raise ValueError(
            f"overlap_forward=True takes an optimizer's step for some parameters at a time, and it is not known "
            f"whether {type(optimizer).__name__} updates each parameter independently. It supports "
            f"{', '.join(kind.__name__ for kind in SEPARABLE)} of torch.optim"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise ValueError("overlap_forward=True cannot be combined with differentiable=True of the optimizer")
    for name, parameter in named:
        if not parameter.is_cpu:
            raise ValueError(
                f"overlap_forward=True supports parameters in CPU memory, and {name} is on {parameter.device}"
            )


class OverlappedOptimizer(_DistributedOptimizer):
    """Base class that DistributedOptimizer adds to the optimizer's class for overlap_forward=True."""

    _flight: StepInFlight | None = None  # the step of which buckets are in flight
    _taking = False  # True while a part of a step is taken

    @delegating_step
    def step(self, closure: Any = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        self.complete()
        if closure is not None or grad_scaler is not None or kwargs or not self._may_overlap():
            result = _DistributedOptimizer.step(self, closure, grad_scaler, **kwargs)
        else:
            result = self._step_ahead()
        reducer = self._reducer
        if reducer is not None and reducer.wants_order():
            used = reducer.used = {}
            for slot in reducer.slots():
                watch(slot.parameter, lambda parameter: used.setdefault(id(parameter), len(used)))
        return result

    def _may_overlap(self) -> bool:
        """Returns False if something acts once per step, so that no parts of a step can be taken."""
        hooks = (self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks)
        others = torch_optimizer._global_optimizer_post_hooks
        foreign = len(torch_optimizer._global_optimizer_pre_hooks) > 1  # one is that of `foreign_steps`
        return self._waits_for_reduction() and not self._synchronized and not any(hooks) and not others and not foreign

    def _step_ahead(self) -> Any:
        self._follow_groups()
        reducer, groups = self._reducer, [_frozen(group) for group in self.param_groups]
        assert reducer is not None
        plan = reducer.synchronize(ahead=True)
        if plan is None:
            return self._base.step(self)
        reference = weakref.ref(self)

        def ended() -> None:
            reducer.before_backward = None
            if (optimizer := reference()) is not None:
                optimizer._flight = None

        flight = StepInFlight(plan, lambda members: self._take(groups, members), ended)
        reducer.before_backward, self._flight = flight.before_backward, flight
        flight.start()
        _in_flight.add(flight)
        others = [p for group in groups for p in group["params"] if not flight.has(p)]
        if others:
            self._take(groups, others)
        return None

    def _take(self, groups: Sequence[dict[str, Any]], parameters: Sequence[torch.Tensor]) -> None:
        """Takes the optimizer's step for these parameters, with the hyperparameters of `groups`."""
        wanted, members = {id(parameter) for parameter in parameters}, vars(self)
        chosen = [{**group, "params": [p for p in group["params"] if id(p) in wanted]} for group in groups]
        before, self._taking = members["param_groups"], True
        members["param_groups"] = [group for group in chosen if group["params"]]
        try:
            self._base.step(self)
        finally:
            members["param_groups"], self._taking = before, False

    def complete(self) -> None:
        """Waits for the gradients in flight, and takes the rest of the step."""
        if self._flight is not None and not self._taking:
            self._flight.complete()

    # ---- methods that need complete steps ----------------------------------------------------------------------------
    @property
    def state(self) -> Any:
        self.complete()
        return vars(self)["state"]

    @state.setter
    def state(self, value: Any) -> None:
        vars(self)["state"] = value

    def _before_step_of(self, optimizer: Any, parameters: set[int] | None) -> None:
        if not self._taking:
            self.complete()
            _DistributedOptimizer._before_step_of(self, optimizer, parameters)

    def synchronize(self) -> None:
        self.complete()
        _DistributedOptimizer.synchronize(self)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.complete()
        _DistributedOptimizer.add_param_group(self, param_group)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.complete()
        return _DistributedOptimizer.state_dict(self, *args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.complete()
        _DistributedOptimizer.load_state_dict(self, *args, **kwargs)

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        self.complete()
        return _DistributedOptimizer.compression_state_dict(self)

    def load_compression_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        self.complete()
        _DistributedOptimizer.load_compression_state_dict(self, state)

    def compression_stats(self) -> list[dict[str, Any]]:
        self.complete()
        return _DistributedOptimizer.compression_stats(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls the optimizer's ``zero_grad``, for gradients in flight after their step."""
        flight = self._flight
        if flight is None:
            return _DistributedOptimizer.zero_grad(self, set_to_none)
        flight.zero_grad([parameter for group in self.param_groups for parameter in group["params"]], set_to_none)


def _frozen(group: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of a group's hyperparameters, which schedulers change after ``step()``."""
    return {
        key: list(value) if key == "params" else value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in group.items()
    }


def _complete_all() -> None:
    for flight in list(_in_flight):
        try:
            flight.complete()
        except HorovodInternalError as error:
            warnings.warn(f"the last step() of an optimizer is incomplete: {error}", stacklevel=4)


exits.completions.append(_complete_all)


def abandon_steps(parameters: Iterable[torch.Tensor]) -> None:
    """Drops the steps in flight of these parameters, because their values will be replaced."""
    for flight in list(_in_flight):
        if any(flight.holds(parameter) for parameter in parameters):
            flight.abandon()
