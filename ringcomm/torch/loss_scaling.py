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

from ringcomm.ops import Max
from ringcomm.torch.asynchronous import operations

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
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
    return leave_out() if any(one.item() for one in found) else take_step()


def share_overflow(optimizer: Any, scaler: Any, name: str, process_set: Any) -> None:
    """Ranks that have unscaled their gradients before they were reduced tell each other of overflows."""
    state = scaler._per_optimizer_states[id(optimizer)]
    mine = [one.item() for one in state["found_inf_per_device"].values()]
    found = torch.tensor(max(mine, default=0.0))
    operations.allreduce_(found, name=f"{name}.found_inf", op=Max, process_set=process_set)
    state["found_inf_per_device"] = {found.device: found}
