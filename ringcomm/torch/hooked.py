"""Parameters of an optimizer, watched for their gradients."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringcomm.torch import shared_gradients
from ringcomm.torch.arguments import Settings
from ringcomm.torch.kind import place_of
from ringcomm.torch.replicas import ReplicaCheck
from ringcomm.torch.slot import NestedBackward, Slot
from ringcomm.torch.tensors import require_arithmetic

TOO_OFTEN = (
    "{name} got a gradient from more backward passes than backward_passes_per_step allows before step(). To add up "
    "gradients of several passes, raise backward_passes_per_step; to drop unwanted ones, call zero_grad()."
)


class HookedParameters(ABC):
    """Calls `on_gradient` when backward has made, or added to, the gradient of a parameter that is trainable."""

    settings: Settings
    replicas: ReplicaCheck

    def __init__(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        self._known = list(parameters)
        self._slots: list[Slot] = []  # of trainable parameters, hooked
        self._devices: list[torch.device] = []  # theirs, but for the CPU; each has a thread that calls hooks
        self._one_by_one = threading.RLock()  # hooks
        self._nested = NestedBackward()
        self.hook_new()

    def add(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Further parameters, from now on."""
        self._known += parameters
        self.hook_new()

    def hook_new(self) -> None:
        """Hooks parameters that have become trainable."""
        hooked = {id(slot.parameter) for slot in self._slots}
        for name, parameter in self._known:
            if parameter.requires_grad and id(parameter) not in hooked:
                require_arithmetic(parameter)
                slot = Slot(name, parameter)
                slot.hooks = [
                    parameter.register_hook(self._make_hook(slot, type(self).before_gradient)),
                    parameter.register_post_accumulate_grad_hook(
                        self._make_hook(slot, HookedParameters._after_gradient)
                    ),
                ]
                if not parameter.is_cpu and parameter.device not in self._devices:
                    self._devices.append(parameter.device)
                slot.room = shared_gradients.make_room(self.settings.process_set, parameter)
                self._slots.append(slot)

    def _make_hook(self, slot: Slot, act: Callable[[Any, Slot], None]) -> Callable[[torch.Tensor], None]:
        # Weak, so that an optimizer that a script has dropped leaves its parameters to the next one.
        me = weakref.ref(self)

        def hook(_: torch.Tensor) -> None:
            owner = me()
            if owner is not None:
                with owner._one_by_one:
                    act(owner, slot)

        return hook

    def _after_gradient(self, slot: Slot) -> None:
        gradient = slot.gradient()
        if gradient is None:
            return
        if gradient.requires_grad:
            raise AssertionError(
                f"the gradient of {slot.name} requires a gradient itself: backward(create_graph=True) cannot be "
                "combined with DistributedOptimizer"
            )
        self.on_gradient(slot, gradient)

    def in_nested_backward(self) -> bool:
        """In a hook: whether gradients may come in parts."""
        return self._nested(bool(self._devices))

    def refuse_capture(self) -> None:
        """UnsupportedError while a CUDA graph is captured."""
        for device in self._devices:
            place_of(device).refuse_capture()

    def before_gradient(self, slot: Slot) -> None:  # noqa: B027
        """Autograd is about to make, or add to, the gradient."""

    @abstractmethod
    def on_gradient(self, slot: Slot, gradient: torch.Tensor) -> None:
        """During backward."""

    def restart(self) -> None:
        """A new step begins."""
        for slot in self._slots:
            slot.restart()

    def __del__(self) -> None:
        for slot in getattr(self, "_slots", ()):
            for hook in slot.hooks:
                hook.remove()
            if slot.room is not None:
                slot.room.end()
