"""The base class of optimizers that step with gradients which a method returns in exchange for local ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcomm._src.torch.relaxed.optimizer import RelaxedOptimizer, evaluated
from ringcomm._src.torch.wrapped import SkipsSynchronize, taking_the_step


class GradientsOptimizer(SkipsSynchronize, RelaxedOptimizer):
    """Base class for methods that exchange gradients.

    The method's ``exchange(counted)`` replaces the gradients, and returns True if there are any.
    """

    _came = False  # there are gradients to step with

    def synchronize(self) -> None:
        """Exchanges this step's gradients, and puts the result into ``.grad``."""
        self._came = self._method.exchange(counted=True)

    @taking_the_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Exchanges the gradients, and takes the optimizer's step with the result, if there is one.

        With gradients one step late there is none in the first step. After an overflow
        (``grad_scaler``) this rank's gradients are skipped.
        """
        loss, counted = evaluated(self, closure, grad_scaler)
        if self._should_synchronize:
            self._came = self._method.exchange(counted)
        result = self._base.step(self, **kwargs) if self._came else None
        self._method.stepped()
        return loss if closure is not None else result

    def finish(self) -> None:
        """Ends this rank's steps. Collective.

        The rank takes the steps that other ranks' gradients require, until all have finished.
        """
        self._method.finish(lambda: self._base.step(self))
