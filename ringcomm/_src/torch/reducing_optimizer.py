"""The steps of a DistributedOptimizer that reduces gradients (`reducer`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ringcomm._src.base.ops import Max
from ringcomm._src.torch import loss_scaling, residuals
from ringcomm._src.torch.autograd import with_gradients as operations
from ringcomm._src.torch.closures import TakesClosures
from ringcomm._src.torch.wrapped import delegating_step, require_closure


class _DistributedOptimizer(TakesClosures):
    """Base class that DistributedOptimizer adds to the optimizer's class to reduce gradients."""

    def synchronize(self) -> None:
        """Waits until every parameter's ``.grad`` is the reduced gradient."""
        self._follow_groups()
        if self._reducer is not None:
            self._reducer.synchronize()
        self._synchronized = True

    @delegating_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Reduces the gradients, then takes the optimizer's step.

        Gradients from before a ``closure`` are reduced first, then those of each of its calls.
        ``GradScaler.step`` passes ``grad_scaler``. If any rank has an overflow, all skip the step.
        """
        if grad_scaler is not None:
            return self._scaled_step(grad_scaler, **kwargs)
        require_closure(closure)
        if not self._should_synchronize:
            self._synchronized = False
            return self._base.step(self, self._evaluating(closure), **kwargs)
        if self._synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after synchronize(): the gradients are "
                "reduced again, which costs time.",
                stacklevel=2,
            )
        if closure is None:
            self.synchronize()
            self._synchronized = False
            return self._base.step(self, **kwargs)
        self._synchronized = self._reduced_anywhere()
        result = self._base.step(self, self._evaluating(closure), **kwargs)
        self._synchronized = False
        return result

    def _reduced_anywhere(self) -> bool:
        """Reduces gradients that precede a closure, if any rank has some. Returns True if so."""
        if self._reducer is None:
            return False
        mine = torch.tensor([self._reducer.has_gradients()], dtype=torch.int32)
        name = f"{self._reducer.settings.name}.before_closure"
        found = bool(operations.allreduce_(mine, name=name, op=Max, process_set=self.process_set))
        if found:  # the optimizer may use them before it calls the closure
            self.synchronize()
        return found

    def _waits_for_reduction(self) -> bool:
        """Returns True if step() would reduce gradients."""
        if self._reducer is None or not self._should_synchronize:
            return False
        return not self._synchronized or self._reducer.has_gradients()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Makes torch.amp.GradScaler leave unscaling and overflows to step()."""
        return self._waits_for_reduction() or bool(vars(self).get("_step_supports_amp_scaling"))

    def _scaled_step(self, scaler: Any, **kwargs: Any) -> Any:
        if self._waits_for_reduction():
            assert self._reducer is not None
            unscaled = loss_scaling.is_unscaled(scaler, self)
            self._reducer.settings.units.follow((lambda: 1.0) if unscaled else scaler.get_scale)
            if unscaled:
                self._reducer.record_changes()
            self.synchronize()
            if unscaled:
                loss_scaling.share_overflow(self, scaler, self._reducer.settings.name, self.process_set)
        self._synchronized = False
        undo = self._reducer.undo if self._reducer is not None else lambda: None
        return loss_scaling.step_if_finite(self, scaler, lambda: self._base.step(self, **kwargs), undo)

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the residuals of error feedback so far: float32 tensors by parameter name.

        Units are those of reduced gradients, without a loss scale. Collective; call it between
        steps. The state may be loaded on any number of ranks. Training then continues as if it had
        not been interrupted, except for rounding. A job of one rank ignores the state.
        """
        return {} if self._reducer is None else residuals.sum_over_ranks(self._reducer)

    def load_compression_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Loads `compression_state_dict`'s residuals. Collective; call it between steps.

        Raises
        ------
        ValueError
            A name is not that of a compressed parameter, or the number of elements differs.
        """
        if self._reducer is not None:
            residuals.restore(self._reducer, state)

    def compression_stats(self) -> list[dict[str, Any]]:
        """Returns a dict for each bucket with error feedback. Call it between steps.

        The keys are ``bucket``, ``elements``, and ``residual`` (a norm). Traffic is in `stats()`.
        """
        return [] if self._reducer is None else self._reducer.norms()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Calls the optimizer's ``zero_grad``.

        After backward without ``step()``, it drops gradients in flight: call it on all ranks.
        """
        if self._reducer is not None:
            self._reducer.discard()
        self._base.zero_grad(self, *args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        if self._reducer is not None:
            self._reducer.discard()
        self._synchronized = False
        self._should_synchronize = True
        self._base.load_state_dict(self, *args, **kwargs)
