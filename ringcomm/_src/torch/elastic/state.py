"""Elastic states of models, optimizers, samplers and other objects with a state_dict.

`TorchState` selects a `StateHandler` for each of its values by the value's type.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from ringcomm._src.elastic.member.state import ObjectState
from ringcomm._src.named import runtime
from ringcomm._src.named.objects import broadcast_object
from ringcomm._src.torch.elastic import packing  # noqa: F401  registers the packing of tensors
from ringcomm._src.torch.elastic.sampler import ElasticSampler
from ringcomm._src.torch.functions import broadcast_optimizer_state, broadcast_parameters
from ringcomm._src.torch.kind import device_module


class StateHandler:
    """Saves and restores a value.

    A custom handler has `save`, `restore` and `sync`, as in Horovod, and stores what it saves in
    attributes. Or it has `contents` and `put_back`, which saves a copy.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Saves a copy of the value."""
        self._saved = copy.deepcopy(self.contents())

    def restore(self) -> None:
        """Restores the saved value."""
        self.put_back(self._saved)

    def sync(self) -> None:
        """Broadcasts the value of rank 0 to all ranks."""
        contents = broadcast_object(self.contents() if runtime.rank() == 0 else None, 0, "elastic.sync")
        if runtime.rank() != 0:
            self.put_back(contents)

    def set_value(self, value: Any) -> None:
        """Replaces the value by another object."""
        self.value = value
        if type(self).contents is StateHandler.contents:
            self.save()

    def contents(self) -> Any:
        """Returns the parts of the value to store."""
        self.save()
        return {name: it for name, it in vars(self).items() if name != "value"}

    def put_back(self, contents: Any) -> None:
        """Restores the value from a result of `contents`, perhaps from another process."""
        vars(self).update(contents)
        self.restore()


class _WithStateDict(StateHandler):
    def contents(self) -> Any:
        return self.value.state_dict()

    def put_back(self, contents: Any) -> None:
        self.value.load_state_dict(contents)


class ModelStateHandler(_WithStateDict):
    """Handles a torch.nn.Module."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(_WithStateDict):
    """Handles a torch.optim.Optimizer. Residuals of compression are not included; they restart at
    zero on every rank."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(_WithStateDict):
    """Handles an ElasticSampler: the rest of the epoch is distributed again."""


Registry = list[tuple[type, Callable[[Any], StateHandler]]]
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Returns pairs of a type and the handler of its values. The first pair that matches is used."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    global _registry
    _registry = registry


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return _WithStateDict(value)  # a learning-rate scheduler, a GradScaler
    return None


class TorchState(ObjectState):
    """An elastic state of a model, an optimizer, samplers, and attributes.

    Args:
        model, optimizer: pass them after their broadcasts, if any; distributed optimizers are allowed.
        kwargs: further values. Those with a state_dict (learning-rate schedulers, GradScaler, more
            models and optimizers, `ElasticSampler`) are saved by it, all other values as they are: epoch=0,
            batch=0.
    """

    _handlers: dict[str, StateHandler]

    def __init__(
        self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ) -> None:
        values = {**kwargs, "model": model, "optimizer": optimizer}
        handlers = {name: handler for name, value in values.items() if (handler := _handler_of(value)) is not None}
        vars(self)["_handlers"] = handlers
        for name, handler in handlers.items():
            vars(self)[name] = handler.value
        rest = {name: value for name, value in values.items() if name not in handlers}
        super().__init__(broadcast_object, runtime.rank, **rest)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self).get("_handlers", {}):
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)

    def contents(self) -> Any:
        self._settle()
        return {
            "attributes": super().contents(),
            "values": {name: handler.contents() for name, handler in self._handlers.items()},
        }

    def _settle(self) -> None:
        """Waits until devices have completed the work of all streams.

        Then a saved state is complete, and no earlier work overwrites a restored state.
        """
        states = [handler.contents() for handler in self._handlers.values() if isinstance(handler, _WithStateDict)]
        tensors = [one for one in tree_flatten((states, super().contents()))[0] if isinstance(one, torch.Tensor)]
        for device in {one.device for one in tensors if not one.is_cpu}:
            device_module(device).synchronize(device)

    def put_back(self, contents: Any) -> None:
        self._settle()
        super().put_back(contents["attributes"])
        if set(contents["values"]) != set(self._handlers):
            raise ValueError(
                f"the state that was kept has {sorted(contents['values'])}, and this one {sorted(self._handlers)}"
            )
        for name, handler in self._handlers.items():
            handler.put_back(contents["values"][name])
        self._settle()

    def sync(self) -> None:
        self._settle()
        for handler in self._handlers.values():
            handler.sync()
        attributes = broadcast_object(super().contents(), 0, "elastic.attributes")
        super().put_back(attributes)
        self.save()
