"""The optimizer of ``DistributedOptimizer(op=Adasum)``, which reduces changes of parameters.

Every rank takes the optimizer's step on its local gradients. Adasum combines the changes of the
parameters, each parameter as one vector. The result is added to the values from before the step.

The optimizer's state (momentum and so on) is local to each rank. Horovod does the same, except that
``step()`` here takes the step of all parameters at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from ringcomm._src.base.ops import Adasum
from ringcomm._src.named.reductions import Reduction
from ringcomm._src.torch import loss_scaling
from ringcomm._src.torch.arguments import Settings
from ringcomm._src.torch.asynchronous import operations
from ringcomm._src.torch.compression import parts_of
from ringcomm._src.torch.hooked import TOO_MANY_PASSES, HookedParameters
from ringcomm._src.torch.replicas import ReplicaCheck
from ringcomm._src.torch.slot import NO_GRADIENT, Slot
from ringcomm._src.torch.wrapped import DistributedOptimizerBase, delegating_step, require_closure
from ringcomm._src.training.plan_agreement import require_equal_texts


class DeltaReducer(HookedParameters):
    """Reduces the changes of one optimizer's parameters by Adasum."""

    def __init__(self, settings: Settings, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        self.settings = settings
        self.replicas = ReplicaCheck(settings)
        super().__init__(parameters)

    def on_gradient(self, slot: Slot, gradient: torch.Tensor) -> None:
        if slot.state == NO_GRADIENT:
            slot.begin(0)
        if self.in_nested_backward():  # the gradient may be computed in parts, and no part is marked as the last one
            return
        slot.count_pass(gradient)
        if slot.passes > self.settings.passes:
            raise AssertionError(TOO_MANY_PASSES.format(name=slot.name))

    @torch.no_grad()
    def step(self, local_step: Callable[[], Any]) -> Any:
        """Takes the local step and applies the combined change. Returns the step's result.

        If the step or the reduction raises, the parameters keep their values from before the step.
        """
        self.refuse_capture()
        self.hook_new()
        self.claim()
        texts = [self.settings.text(), *(slot.describe().text for slot in self._slots)]
        name, flag = f"{self.settings.name}.deltas", self.replicas.due
        self.replicas.step(self._slots, require_equal_texts(texts, name, self.settings.process_set, flag=flag))
        parameters = [slot.parameter.detach() for slot in self._slots]
        starts = [parameter.clone() for parameter in parameters]
        try:
            with torch.enable_grad():
                result = local_step()
            for parameter, start in zip(parameters, starts, strict=True):
                parameter.sub_(start)
            for start, delta in zip(starts, self._reduce(parameters), strict=True):
                start.add_(delta)
        finally:
            for parameter, start in zip(parameters, starts, strict=True):
                parameter.copy_(start)
            self.restart()
        return result

    def _reduce(self, deltas: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        settings = self.settings
        wire, compressor = parts_of(settings.compression)
        pairs = [compressor.compress(delta) for delta in deltas]
        how = Reduction(Adasum, 1.0, 1.0, settings.process_set, wire=wire)
        requests = [operations.allreduce_request(how, tensor, True) for tensor, _ in pairs]
        reduced = how.submit_group(requests, [f"{settings.name}.{slot.name}" for slot in self._slots]).wait()
        return [compressor.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs, strict=True)]


class DistributedAdasumOptimizer(DistributedOptimizerBase):
    """Base class that ``DistributedOptimizer(op=Adasum)`` adds to the optimizer's class."""

    _reducer: DeltaReducer

    def synchronize(self) -> None:
        """Does nothing: ``step()`` reduces the changes of the parameters, not gradients."""

    def skip_synchronize(self) -> NoReturn:
        """Raises AssertionError, as in Horovod: there is nothing to skip."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    _step_supports_amp_scaling = True  # torch.amp.GradScaler lets step() handle overflows

    @delegating_step
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None, **kwargs: Any) -> Any:
        """Takes a step on this rank's gradients, and combines the ranks' changes by Adasum.

        The optimizer evaluates a ``closure`` as often as it needs, on this rank alone.
        ``torch.amp.GradScaler.step`` passes ``grad_scaler``: all ranks skip the step if any rank
        had an overflow.
        """
        if grad_scaler is not None:
            settings = self._reducer.settings
            loss_scaling.unscale(self, grad_scaler)
            loss_scaling.share_overflow(self, grad_scaler, settings.name, settings.process_set)
            return loss_scaling.step_if_finite(self, grad_scaler, lambda: self.step(**kwargs))
        require_closure(closure)
        self._follow_groups()
        arguments = () if closure is None else (closure,)
        return self._reducer.step(lambda: self._base.step(self, *arguments, **kwargs))

    def _before_step_of(self, optimizer: Any, parameters: set[int] | None) -> None:
        if optimizer is not self:  # this optimizer's own step uses unreduced gradients, as intended
            DistributedOptimizerBase._before_step_of(self, optimizer, parameters)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Calls the optimizer's ``zero_grad``, and restarts the count of backward passes."""
        self._reducer.restart()
        self._base.zero_grad(self, *args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._reducer.restart()
        self._base.load_state_dict(self, *args, **kwargs)
