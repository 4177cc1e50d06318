"""``step(closure)`` of distributed optimizers: reduces gradients after each call of the closure.

Some optimizers call the closure several times. `TakesClosures` is a base of the optimizer that
DistributedOptimizer makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ringcomm._src.base.ops import Max
from ringcomm._src.torch.autograd import with_gradients as operations
from ringcomm._src.torch.reducer import GradientReducer
from ringcomm._src.torch.wrapped import DistributedOptimizerBase, SkipsSynchronize


class TakesClosures(SkipsSynchronize, DistributedOptimizerBase):
    """Base class that adds ``step(closure)`` to an optimizer."""

    _reducer: GradientReducer | None
    op: Any
    process_set: Any
    _synchronized: bool

    if TYPE_CHECKING:

        def synchronize(self) -> None:
            """Waits until the gradients are reduced."""

    def _evaluating(self, closure: Callable[[], Any] | None) -> Callable[[], Any] | None:
        """Returns the closure, followed by a reduction unless synchronize() is skipped."""
        if closure is None or self._reducer is None:
            return closure
        should_synchronize = self._should_synchronize

        def evaluate() -> Any:
            before = self._gradients() if self._synchronized else None
            loss = closure()
            if not should_synchronize:
                self._before_step_of(self, None)  # raises an error if gradients are not reduced
                return loss
            if before is None or self._changed_anywhere(before):
                self.synchronize()
            self._synchronized = False
            return self._agreed_loss(loss)

        return evaluate

    def _gradients(self) -> list[tuple[int, int]]:
        """Returns id and version of each gradient, to detect changes."""
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        return [(0, 0) if gradient is None else (id(gradient), gradient._version) for gradient in gradients]

    def _changed_anywhere(self, before: list[tuple[int, int]]) -> bool:
        """Returns True if any rank has computed or changed gradients since the last reduction."""
        assert self._reducer is not None
        mine = torch.tensor([self._reducer.has_gradients() or before != self._gradients()], dtype=torch.int32)
        name = f"{self._reducer.settings.name}.after_closure"
        return bool(operations.allreduce_(mine, name=name, op=Max, process_set=self.process_set))

    def _agreed_loss(self, loss: Any) -> Any:
        """Returns the reduced loss for LBFGS, so that all ranks call the closure equally often."""
        if self._reducer is None or not isinstance(self, torch.optim.LBFGS):
            return loss
        value = torch.as_tensor(loss).detach().clone()
        return operations.allreduce_(
            value, name=f"{self._reducer.settings.name}.loss", op=self.op, process_set=self.process_set
        )
