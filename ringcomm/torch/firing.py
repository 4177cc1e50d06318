"""What a gradient hook needs to know of the backward pass that called it."""

from __future__ import annotations

import sys

import torch

_BACKWARD_CODE = {torch.autograd.backward.__code__, torch.autograd.grad.__code__}


def inside_nested_backward() -> bool:
    """Whether a backward pass runs inside another one, as reentrant checkpointing does.

    Then a parameter's gradient may come in several parts, each of which calls the hook, and none says that it is the
    last. Autograd does not tell; but on the CPU both passes run on the caller's thread, so both are on its stack.
    """
    seen = 0
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _BACKWARD_CODE:
            seen += 1
            if seen > 1:
                return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class NestedBackward:
    """Answers `inside_nested_backward` once per backward pass, for walking the stack costs microseconds."""

    def __init__(self) -> None:
        self._pass_id = -1
        self._nested = False

    def __call__(self) -> bool:
        pass_id = torch._C._current_graph_task_id() if hasattr(torch._C, "_current_graph_task_id") else -1
        if pass_id == -1:
            return inside_nested_backward()
        if pass_id != self._pass_id:
            self._pass_id, self._nested = pass_id, inside_nested_backward()
        return self._nested


class GradientWatch:
    """Tells whether a gradient was only added to since the last look, or replaced or rewritten (``zero_grad``).

    Autograd adds in place, which raises the tensor's version by one; anything else leaves other traces. (Not all does:
    ``GradScaler.unscale_`` and writes to ``.data`` leave none.)
    """

    __slots__ = ("_address", "_identity", "_version")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._identity, self._address, self._version = 0, 0, -1

    def look(self, gradient: torch.Tensor) -> None:
        self._identity, self._version = id(gradient), gradient._version
        self._address = 0 if gradient.layout != torch.strided else gradient.data_ptr()

    def only_added_to(self, gradient: torch.Tensor) -> bool:
        return self._changes(gradient) == 1

    def untouched(self, gradient: torch.Tensor | None) -> bool:
        return gradient is not None and self._changes(gradient) == 0

    def _changes(self, gradient: torch.Tensor) -> int:
        """How often it was written to; -1 if it is another one."""
        address = 0 if gradient.layout != torch.strided else gradient.data_ptr()
        same = (id(gradient), address) == (self._identity, self._address)
        return gradient._version - self._version if same else -1
