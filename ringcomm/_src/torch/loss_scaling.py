"""torch.amp.GradScaler with gradients that are reduced in step(): every rank sees the same overflow.

GradScaler looks for overflows before it calls ``step()``. Then gradients are still in flight, and
it would see overflows of this rank only. But it leaves this to optimizers that declare
``_step_supports_amp_scaling`` and take the scaler in ``step``. DistributedOptimizer does so
while there is something to reduce.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from ringcomm._src.base.ops import Max
from ringcomm._src.torch.asynchronous import operations

# torch plans to replace this interface, and warns at every step. Users cannot act on that.
warnings.filterwarnings("ignore", "GradScaler is going to stop passing itself", FutureWarning)


def is_unscaled(scaler: Any, optimizer: Any) -> bool:
    """Returns True if ``scaler.unscale_(optimizer)`` has been called in this step."""
    return scaler._per_optimizer_states[id(optimizer)]["stage"].name == "UNSCALED"


def unscale(optimizer: Any, scaler: Any) -> None:
    """Unscales the gradients unless that has been done in this step."""
    if not is_unscaled(scaler, optimizer):
        scaler.unscale_(optimizer)


def step_if_finite(
    optimizer: Any, scaler: Any, take_step: Callable[[], Any], leave_out: Callable[[], Any] = lambda: None
) -> Any:
    """Unscales the reduced gradients if necessary, and takes the step unless there is an overflow.

    Returns the step's result, or that of `leave_out` after an overflow.
    """
    unscale(optimizer, scaler)
    return leave_out() if found_in(optimizer, scaler) else take_step()


def found_in(optimizer: Any, scaler: Any) -> bool:
    """Returns True if this rank's unscaled gradients have an overflow."""
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
    return any(one.item() for one in found)


def look_again(optimizer: Any, scaler: Any) -> None:
    """Recomputes the overflow flag from the current gradients, which were exchanged after they were unscaled."""
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    found = torch.tensor(0.0 if finite else 1.0)
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {found.device: found}


def share_overflow(optimizer: Any, scaler: Any, name: str, process_set: Any) -> None:
    """Combines the overflow flags of all ranks, for gradients that were unscaled before their reduction."""
    state = scaler._per_optimizer_states[id(optimizer)]
    mine = [one.item() for one in state["found_inf_per_device"].values()]
    found = torch.tensor(max(mine, default=0.0))
    operations.allreduce_(found, name=f"{name}.found_inf", op=Max, process_set=process_set)
    state["found_inf_per_device"] = {found.device: found}
