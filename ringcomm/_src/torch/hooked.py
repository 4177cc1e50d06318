"""Base class of reducers: hooks parameters to detect when backward has computed gradients."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor

from ringcomm._src.torch import shared_gradients
from ringcomm._src.torch.arguments import Settings
from ringcomm._src.torch.kind import location_of
from ringcomm._src.torch.nested_backward import NestedBackward, backward_id
from ringcomm._src.torch.replicas import ReplicaCheck
from ringcomm._src.torch.slot import HANDED_OVER, NO_GRADIENT, Slot, facts_of
from ringcomm._src.torch.tensors import require_arithmetic

TOO_MANY_PASSES = (
    "{name} got a gradient from more backward passes than backward_passes_per_step allows before step(). To add up "
    "gradients of several passes, raise backward_passes_per_step; to drop unwanted ones, call zero_grad()."
)

_reducers: weakref.WeakSet[HookedParameters] = weakref.WeakSet()


class HookedParameters(ABC):
    """Calls `on_gradient` when backward has set, or added to, a parameter's gradient."""

    settings: Settings
    replicas: ReplicaCheck

    def __init__(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        self._parameters = self._unhooked = list(parameters)
        self._slots: list[Slot] = []  # slots of the trainable parameters
        self._devices: list[torch.device] = []  # devices other than the CPU; each has a thread that calls hooks
        self._hook_lock = threading.RLock()  # serialises hooks
        self._nested = NestedBackward()
        self.exclusive = True  # False: another optimizer may step with the same gradients
        # Id of a backward pass in which hooks only call Slot.take(); None: there is none.
        self.quiet_pass: float | None = None
        self.fired = 0  # parameters with a gradient in this step
        self.hook_new()

    def follow(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Replaces the watched parameters by these."""
        self._parameters = list(parameters)
        wanted = {id(parameter) for _, parameter in parameters}
        self.retire({slot for slot in self._slots if id(slot.parameter) not in wanted})
        self._find_unhooked()
        self.hook_new()

    def retire(self, slots: AbstractSet[Slot]) -> None:
        """Unhooks these slots. `hook_new` makes new slots for parameters that are still in use."""
        if slots:
            self._slots = [slot for slot in self._slots if slot not in slots]
            self._find_unhooked()
        for slot in slots:
            slot.end()

    def _find_unhooked(self) -> None:
        hooked = {id(slot.parameter) for slot in self._slots}
        self._unhooked = [(name, parameter) for name, parameter in self._parameters if id(parameter) not in hooked]

    def hook_new(self) -> None:
        """Hooks parameters that have become trainable."""
        trainable = [(name, parameter) for name, parameter in self._unhooked if parameter.requires_grad]
        if not trainable:
            return
        try:
            for name, parameter in trainable:
                self._hook(name, parameter)
        finally:  # a parameter that is refused must not make the next call hook the others twice
            self._find_unhooked()
        _reducers.add(self)
        for rival in self._rivals():
            self.exclusive = rival.exclusive = False

    def _hook(self, name: str, parameter: torch.Tensor) -> None:
        require_arithmetic(parameter)
        slot = Slot(name, parameter)
        before, after = self._make_hooks(slot)
        slot.hooks = [
            parameter.register_hook(before),
            parameter.register_post_accumulate_grad_hook(after),
        ]
        if not parameter.is_cpu and parameter.device not in self._devices:
            self._devices.append(parameter.device)
        slot.blocks = shared_gradients.reserve_blocks(self.settings.process_set, slot.like)
        self._slots.append(slot)

    # ---- other optimizers with the same parameters -------------------------------------------------------------------
    def _rivals(self) -> list[HookedParameters]:
        mine = {id(slot.parameter) for slot in self._slots}
        return [
            other
            for other in list(_reducers)
            if other is not self and any(id(slot.parameter) in mine for slot in other._slots)
        ]

    def claim(self) -> None:
        """Makes other optimizers of these parameters forget the gradients that this one uses."""
        if not self.exclusive:
            mine = {id(slot.parameter) for slot in self._slots}
            rivals = self._rivals()
            self.exclusive = not rivals
            for rival in rivals:
                rival.forget(mine)

    def forget(self, parameters: AbstractSet[int] | None) -> None:
        """Forgets the gradients of these parameters (by id), which another optimizer has used."""
        taken = [slot for slot in self._slots if parameters is None or id(slot.parameter) in parameters]
        if any(slot.state >= HANDED_OVER for slot in taken):
            raise AssertionError(
                f"gradients ({taken[0].name}, ...) are already being sent for another DistributedOptimizer of the same "
                "parameters: create all optimizers of these parameters before backward()"
            )
        for slot in taken:
            slot.restart()

    def unreduced(self, parameters: AbstractSet[int] | None) -> list[str]:
        """Returns the names of parameters (by id; None: all) with unreduced gradients."""
        return [
            slot.name
            for slot in self._slots
            if slot.state != NO_GRADIENT and (parameters is None or id(slot.parameter) in parameters)
        ]

    def _make_hooks(self, slot: Slot) -> tuple[Callable[[torch.Tensor], None], Callable[[torch.Tensor], None]]:
        # The reference is weak, so that a dropped optimizer is freed, and its hooks no longer act.
        # Backward evicts this code from the caches, so each function that a hook calls costs
        # microseconds. In a quiet pass a hook therefore calls only what is written here.
        reference, parameter = weakref.ref(self), slot.parameter

        def before(_: torch.Tensor) -> None:
            owner = reference()
            if owner is None or (slot.state == NO_GRADIENT and owner.quiet_pass == backward_id()):
                return
            with owner._hook_lock:
                owner.before_gradient(slot)

        def after(_: torch.Tensor) -> None:
            owner = reference()
            if owner is None:
                return
            if slot.state == NO_GRADIENT and owner.quiet_pass == backward_id():
                gradient = parameter.grad
                usual = slot.in_plan and not slot.in_parts and facts_of(parameter) == slot.facts
                if usual and type(gradient) is Tensor and not gradient.requires_grad:
                    slot.take(gradient, owner.fired)
                    owner.fired += 1
                    return
            with owner._hook_lock:
                owner._after_gradient(slot)

        return before, after

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
        """Returns True if backward may compute gradients in parts. Call it in a hook."""
        return self._nested(bool(self._devices))

    def refuse_capture(self) -> None:
        """Raises UnsupportedError while a CUDA graph is captured."""
        for device in self._devices:
            location_of(device).refuse_capture()

    def before_gradient(self, slot: Slot) -> None:  # noqa: B027
        """Called before autograd writes the gradient, or returns it from ``autograd.grad``."""

    @abstractmethod
    def on_gradient(self, slot: Slot, gradient: torch.Tensor) -> None:
        """Called during backward, after the gradient was set or added to."""

    def restart(self) -> None:
        """Begins a new step."""
        for slot in self._slots:
            slot.restart()

    def __del__(self) -> None:
        for slot in getattr(self, "_slots", ()):
            slot.end()
