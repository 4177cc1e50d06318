"""The base class of optimizers that step with gradients that a method exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcomm._src.torch.relaxed.optimizer import RelaxedOptimizer, evaluated
from ringcomm._src.torch.wrapped import SkipsSynchronize, delegating_step


class GradientsOptimizer(SkipsSynchronize, RelaxedOptimizer):
    """Base class for methods that exchange gradients.

    The method's ``exchange(counted)`` replaces this rank's gradients by exchanged ones. It returns
    True if it has done so. ``counted``: False to leave this rank's gradients out (overflow).
    """

    _has_gradients = False  # the last exchange has set gradients to step with

    def synchronize(self) -> None:
        """Exchanges this step's gradients, and puts the result into ``.grad``."""
        self._has_gradients = self._method.exchange(counted=True)

    @delegating_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Exchanges the gradients, and takes the optimizer's step with the result, if there is one.

        If gradients are used one step late, the first exchange has no result. After an overflow
        (``grad_scaler``), this rank's gradients are left out of the exchange.
        """
        loss, counted = evaluated(self, closure, grad_scaler)
        if self._should_synchronize:
            self._has_gradients = self._method.exchange(counted)
        result = self._base.step(self, **kwargs) if self._has_gradients else None
        self._method.stepped()
        return loss if closure is not None else result

    def finish(self) -> None:
        """Ends this rank's steps. Collective.

        Until all ranks have finished, this rank takes steps with the other ranks' gradients.
        """
        self._method.finish(lambda: self._base.step(self))
