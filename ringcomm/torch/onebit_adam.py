"""Adam whose momentum travels, so that it can be compressed to a sign."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

# Of a tensor's mean variance. A sign says of an element that it is as large as the mean of its group: one whose
# variance is far less would be moved by far more than lr.
LEAST = 0.01


class OneBitAdam(torch.optim.Optimizer):
    """Adam for gradients that lose much on their way: after ``freeze_step`` steps the variance is no longer adapted,
    and what ranks exchange is their momentum, which errors are averaged out of. Wrap it as any other::

        optimizer = hvd.OneBitAdam(model.parameters(), lr=1e-3, freeze_step=1000)
        optimizer = hvd.DistributedOptimizer(
            optimizer, model.named_parameters(), compression=hvd.Compression.onebit(warmup_steps=1000)
        )

    Compression begins when the variance is frozen, so ``warmup_steps`` is ``freeze_step``. In one process, and
    uncompressed, it is Adam, but that the variance is frozen: elements that had no gradient until then are left alone.

    Source: Tang et al., "1-bit Adam", arXiv:2102.02888.

    Args:
        params: parameters, or groups of them.
        lr: the step's size.
        betas: decay of the momentum and of the variance, at each step.
        eps: added to the variance's root.
        weight_decay: added to gradients, times the parameter.
        freeze_step: steps in which the variance is adapted.

    Raises:
        ValueError: an argument is out of range; a GradScaler is used with it.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        freeze_step: int = 1000,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or freeze_step < 1 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                "OneBitAdam: lr, eps and weight_decay are not negative, betas in [0, 1), and freeze_step at least 1"
            )
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "freeze_step": freeze_step},
        )
        self._sent: set[torch.Tensor] = set()  # whose momentum is what comes back as the gradient
        self._groups: dict[torch.Tensor, dict[str, Any]] = {}  # by parameter, in one step

    def _group_of(self, parameter: torch.Tensor) -> dict[str, Any]:
        if not self._groups:
            self._groups |= {p: group for group in self.param_groups for p in group["params"]}
        return self._groups[parameter]

    def before_travel(self, parameter: torch.Tensor, view: torch.Tensor, share: float) -> None:
        """Turns a gradient into this rank's part of the momentum, once the variance is frozen. `share`: of what all
        ranks have alike."""
        state, group = self.state[parameter], self._group_of(parameter)
        if state.get("step", 0) < group["freeze_step"]:
            return
        with torch.no_grad():
            self._momentum(parameter, view, group, share)
        self._sent.add(parameter)

    def _momentum(
        self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any], share: float = 1.0
    ) -> None:
        """In place of the gradient."""
        beta = group["betas"][0]
        if group["weight_decay"]:
            gradient.add_(parameter.detach(), alpha=group["weight_decay"] * share)
        gradient.mul_(1 - beta).add_(self.state[parameter]["exp_avg"], alpha=beta * share)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_of(parameter, group)
        self._sent.clear()
        self._groups.clear()
        return loss

    def _step_of(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        if parameter.grad.is_sparse:
            raise ValueError("OneBitAdam takes dense gradients: use DistributedOptimizer(sparse_as_dense=True)")
        state, (first, second) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        momentum, variance = state["exp_avg"], state["exp_avg_sq"]
        gradient = parameter.grad.detach()
        if state["step"] >= group["freeze_step"]:
            if parameter not in self._sent:
                gradient = gradient.clone()
                self._momentum(parameter, gradient, group)
            momentum.copy_(gradient).masked_fill_(variance == 0, 0.0)  # which a sign cannot say
        else:
            if group["weight_decay"]:
                gradient = gradient.add(parameter, alpha=group["weight_decay"])
            momentum.lerp_(gradient, 1 - first)
            variance.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            if state["step"] + 1 == group["freeze_step"]:
                variance.copy_(torch.where(variance > 0, variance.clamp_min(LEAST * variance.mean()), variance))
        state["step"] += 1
        adapted = min(state["step"], group["freeze_step"])
        root = (variance / (1 - second**adapted)).sqrt_().add_(group["eps"])
        parameter.addcdiv_(momentum, root, value=-group["lr"] / (1 - first ** state["step"]))
