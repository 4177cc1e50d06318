"""Optimizers that step with gradients which a method gives them for their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcomm._src.torch.relaxed.optimizer import RelaxedOptimizer, evaluated
from ringcomm._src.torch.wrapped import SkipsSynchronize, taking_the_step


class GradientsOptimizer(SkipsSynchronize, RelaxedOptimizer):
    """What is added where the method gives gradients for gradients: its ``exchange(counted)`` puts them in their place,
    and says whether there are any."""

    _came = False  # whether there are gradients to step with

    def synchronize(self) -> None:
        """Gives this step's gradients, and puts what comes in return into ``.grad``."""
        self._came = self._method.exchange(counted=True)

    @taking_the_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Gives the gradients and takes the optimizer's step with what comes in return, if anything does (gradients one
        step late: not in the first step). An overflow (``grad_scaler``) leaves this rank's gradients out."""
        loss, counted = evaluated(self, closure, grad_scaler)
        if self._should_synchronize:
            self._came = self._method.exchange(counted)
        result = self._base.step(self, **kwargs) if self._came else None
        self._method.stepped()
        return loss if closure is not None else result

    def finish(self) -> None:
        """This rank makes no more steps: it takes those that the others' gradients ask for, until all have finished.
        Collective."""
        self._method.finish(lambda: self._base.step(self))
