"""Detects optimizer steps that would use unreduced gradients.

torch calls `_before_step` before the step of any optimizer. This includes the optimizer that was
wrapped, and optimizers that share parameters with a distributed one.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

_lock = threading.Lock()
_wrappers: tuple[weakref.ref[Any], ...] = ()  # distributed optimizers; the tuple is replaced, never changed
_registered = False


def watch(wrapper: Any) -> None:
    """Calls ``wrapper._before_step_of(optimizer, parameters)`` before a step on its parameters.

    `parameters`: ids of the stepping optimizer's parameters, or None if it is the wrapper or the
    optimizer that it wraps.
    """
    global _wrappers, _registered
    with _lock:
        _wrappers = (*(ref for ref in _wrappers if ref() is not None), weakref.ref(wrapper))
        if not _registered:
            _registered = True
            register_optimizer_step_pre_hook(_before_step)


def _before_step(optimizer: Any, *_: Any) -> None:
    parameters: set[int] | None = None
    for reference in _wrappers:
        wrapper = reference()
        if wrapper is None:
            continue
        if optimizer is wrapper or optimizer is wrapper._inner:
            wrapper._before_step_of(optimizer, None)
            continue
        if parameters is None:
            parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not parameters.isdisjoint(wrapper._parameter_ids) and not any(
            it is wrapper for it in vars(optimizer).values()
        ):
            wrapper._before_step_of(optimizer, parameters)
