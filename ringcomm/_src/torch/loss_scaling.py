"""torch.amp.GradScaler with gradients reduced in step(): all ranks see the same overflow.

By default GradScaler looks for overflows before it calls ``step()``. The gradients are then still
in flight, so it would detect overflows of this rank only. If an optimizer declares
``_step_supports_amp_scaling``, GradScaler passes itself to ``step``, which looks for overflows.
DistributedOptimizer declares it while there are gradients to reduce.
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
    optimizer: Any, scaler: Any, take_step: Callable[[], Any], on_overflow: Callable[[], Any] = lambda: None
) -> Any:
    """Unscales the reduced gradients if necessary, and takes the step unless there is an overflow.

    Returns the step's result, or that of `on_overflow` after an overflow.
    """
    unscale(optimizer, scaler)
    return on_overflow() if has_overflow(optimizer, scaler) else take_step()


def has_overflow(optimizer: Any, scaler: Any) -> bool:
    """Returns True if this rank's unscaled gradients have an overflow."""
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
    return any(flag.item() for flag in found)


def recheck_overflow(optimizer: Any, scaler: Any) -> None:
    """Recomputes the overflow flag from gradients that were exchanged after unscaling."""
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    found = torch.tensor(0.0 if finite else 1.0)
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {found.device: found}


def share_overflow(optimizer: Any, scaler: Any, name: str, process_set: Any) -> None:
    """Combines all ranks' overflow flags, for gradients that were unscaled before the reduction."""
    state = scaler._per_optimizer_states[id(optimizer)]
    mine = [flag.item() for flag in state["found_inf_per_device"].values()]
    found = torch.tensor(max(mine, default=0.0))
    operations.allreduce_(found, name=f"{name}.found_inf", op=Max, process_set=process_set)
    state["found_inf_per_device"] = {found.device: found}
