"""Detects backward passes that run inside another one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FrameType

import torch

_BACKWARD_CODE = {torch.autograd.backward.__code__, torch.autograd.grad.__code__}


def _backwards_on(frame: FrameType | None) -> int:
    """Returns the number of calls of backward on a stack, from this frame on; at most two."""
    seen = 0
    while frame is not None and seen < 2:
        seen += frame.f_code in _BACKWARD_CODE
        frame = frame.f_back
    return seen


def inside_nested_backward(everywhere: bool = False) -> bool:
    """Returns True if a backward pass runs inside another one, as in reentrant checkpointing.

    A gradient may then be computed in parts. Each part calls the hook, and no part is marked as the
    last. Autograd does not report nesting, but on the CPU both passes are on the caller's stack.
    Hooks of device parameters run on a thread of the device, which also begins the inner pass. The
    outer pass is on another thread's stack, so `everywhere` searches the stacks of all threads.
    (Independent passes of two threads look nested; gradients are then sent late, but correctly.)
    """
    if not everywhere:
        return _backwards_on(sys._getframe(1)) > 1
    return sum(_backwards_on(frame) for frame in sys._current_frames().values()) > 1


def _no_id() -> float:
    return math.nan


# Returns the id of the backward pass that runs on this thread; -1: none runs. In an old torch, the
# passes have no ids: returns NaN, which equals no id.
backward_id: Callable[[], float] = getattr(torch._C, "_current_graph_task_id", _no_id)


class NestedBackward:
    """Caches `inside_nested_backward` per backward pass: walking the stack costs microseconds."""

    def __init__(self) -> None:
        self._pass_id: float = -1
        self._nested = False

    def __call__(self, everywhere: bool) -> bool:
        """Returns the cached result. `everywhere`: hooks may run on other threads."""
        pass_id = backward_id()
        if pass_id < 0 or math.isnan(pass_id):
            return inside_nested_backward(everywhere)
        if pass_id != self._pass_id:
            self._pass_id, self._nested = pass_id, inside_nested_backward(everywhere)
        return self._nested
