"""The optimizer that ``DistributedOptimizer(op=Adasum)`` gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from ringcomm.torch import loss_scaling
from ringcomm.torch.deltas import DeltaReducer


class _DistributedAdasumOptimizer(torch.optim.Optimizer):
    """What it adds to an optimizer's class: its contents become a subclass of that class."""

    _base: Any  # the optimizer's own class
    _reducer: DeltaReducer
    _parameter_names: dict[torch.Tensor, str]

    def synchronize(self) -> None:
        """Does nothing: gradients are not reduced; ``step()`` reduces what comes of them."""

    def skip_synchronize(self) -> NoReturn:
        """Raises AssertionError, as in Horovod: there is nothing to skip."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    _step_supports_amp_scaling = True  # torch.amp.GradScaler leaves overflows to step(), which tells all ranks

    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Takes the optimizer's step on this rank's gradients, and combines the changes of all ranks by Adasum.

        A ``closure`` is evaluated as often as the optimizer likes, on this rank alone. ``grad_scaler`` is given by
        ``torch.amp.GradScaler.step``: the step is left out on all ranks if any of them had an overflow.
        """
        if grad_scaler is not None:
            settings = self._reducer.settings
            loss_scaling.unscale(self, grad_scaler)
            loss_scaling.share_overflow(self, grad_scaler, settings.name, settings.process_set)
            return loss_scaling.step_if_finite(self, grad_scaler, lambda: self.step(**kwargs))
        arguments = () if closure is None else (closure,)
        return self._reducer.step(lambda: self._base.step(self, *arguments, **kwargs))

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own. Backward passes are counted anew."""
        self._reducer.restart()
        self._base.zero_grad(self, *args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._reducer.restart()
        self._base.load_state_dict(self, *args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own; call it on all ranks."""
        self._base.add_param_group(self, param_group)
        group = len(self.param_groups) - 1
        new = [
            (f"allreduce.noname.{group}.{i}", p)
            for i, p in enumerate(self.param_groups[group]["params"])
            if p not in self._parameter_names
        ]
        self._parameter_names.update((p, name) for name, p in new)
        self._reducer.add(new)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add up before a step."""
        self.backward_passes_per_step = passes
        self._reducer.settings.passes = passes


# The base's step runs the step hooks and the profiler's mark; without this torch would run them around ours too.
_DistributedAdasumOptimizer.step.hooked = True  # type: ignore[attr-defined]
