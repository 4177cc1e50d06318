"""torch.amp.GradScaler with gradients that are reduced in step(): every rank sees the same overflow.

GradScaler looks for overflows before it calls ``step()``: only this rank's, in gradients that are still on
their way. But it leaves all of that to optimizers that declare ``_step_supports_amp_scaling`` and whose ``step`` takes
the scaler; DistributedOptimizer does so while there is something to reduce.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from ringcomm._src.base.ops import Max
from ringcomm._src.torch.asynchronous import operations

# torch means to replace what is used here one day, and says so at every step; there is nothing a user can do about it.
warnings.filterwarnings("ignore", "GradScaler is going to stop passing itself", FutureWarning)


def is_unscaled(scaler: Any, optimizer: Any) -> bool:
    """Whether ``scaler.unscale_(optimizer)`` has been called in this step."""
    return scaler._per_optimizer_states[id(optimizer)]["stage"].name == "UNSCALED"


def unscale(optimizer: Any, scaler: Any) -> None:
    """Once in a step."""
    if not is_unscaled(scaler, optimizer):
        scaler.unscale_(optimizer)


def step_if_finite(
    optimizer: Any, scaler: Any, take_step: Callable[[], Any], leave_out: Callable[[], Any] = lambda: None
) -> Any:
    """Unscales the reduced gradients if that has not been done, and takes the step, or, after an overflow, leaves it
    out.

    Returns the step's result; None if it was not taken.
    """
    unscale(optimizer, scaler)
    return leave_out() if found_in(optimizer, scaler) else take_step()


def found_in(optimizer: Any, scaler: Any) -> bool:
    """Whether this rank's gradients, which are unscaled, have an overflow."""
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
    return any(one.item() for one in found)


def look_again(optimizer: Any, scaler: Any) -> None:
    """Gradients have been exchanged since they were unscaled: an overflow is whatever they hold now."""
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    found = torch.tensor(0.0 if finite else 1.0)
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {found.device: found}


def share_overflow(optimizer: Any, scaler: Any, name: str, process_set: Any) -> None:
    """Ranks that have unscaled their gradients before they were reduced tell each other of overflows."""
    state = scaler._per_optimizer_states[id(optimizer)]
    mine = [one.item() for one in state["found_inf_per_device"].values()]
    found = torch.tensor(max(mine, default=0.0))
    operations.allreduce_(found, name=f"{name}.found_inf", op=Max, process_set=process_set)
    state["found_inf_per_device"] = {found.device: found}
