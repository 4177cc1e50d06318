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
from ringcomm._src.torch.overlap.optimizer import abandon_steps


class StateHandler:
    """Saves and restores a value.

    A custom handler defines `save`, `restore` and `sync`, as in Horovod, and saves into attributes.
    Or it defines `contents` and `put_back`, so that only one copy is saved.

    Parameters
    ----------
    value : Any
        The value to save.

    Examples
    --------
    >>> from ringcomm.torch.elastic.state import StateHandler
    >>> class ListHandler(StateHandler):
    ...     def contents(self):
    ...         return list(self.value)
    ...
    ...     def put_back(self, contents):
    ...         self.value[:] = contents
    >>> handler = ListHandler([rank])
    >>> handler.sync()
    >>> handler.value
    [0]
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
        """Replaces the value. Saves it, except in classes that override `contents`."""
        self.value = value
        if type(self).contents is StateHandler.contents:
            self.save()

    def contents(self) -> Any:
        """Returns the parts of the value to store."""
        self.save()
        return {name: it for name, it in vars(self).items() if name != "value"}

    def put_back(self, contents: Any) -> None:
        """Restores the value from a result of `contents`, possibly of another process."""
        vars(self).update(contents)
        self.restore()


class _WithStateDict(StateHandler):
    def contents(self) -> Any:
        return self.value.state_dict()

    def put_back(self, contents: Any) -> None:
        self.value.load_state_dict(contents)


class ModelStateHandler(_WithStateDict):
    """Handler of a torch.nn.Module.

    Examples
    --------
    >>> from ringcomm.torch.elastic.state import ModelStateHandler
    >>> model = torch.nn.Linear(1, 1)
    >>> _ = torch.nn.init.constant_(model.weight, rank)
    >>> ModelStateHandler(model).sync()
    >>> model.weight.item()
    0.0
    """

    def put_back(self, contents: Any) -> None:
        abandon_steps(self.value.parameters())
        super().put_back(contents)

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(_WithStateDict):
    """Handler of a torch.optim.Optimizer. Residuals of compression restart at zero.

    Examples
    --------
    >>> from ringcomm.torch.elastic.state import OptimizerStateHandler
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1 * (rank + 1))
    >>> OptimizerStateHandler(optimizer).sync()
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(_WithStateDict):
    """Handler of an ElasticSampler. `restore` distributes the rest of the epoch again.

    Examples
    --------
    >>> from ringcomm.torch.elastic.state import SamplerStateHandler
    >>> handler = SamplerStateHandler(hvd.elastic.ElasticSampler(range(8)))
    >>> handler.save()
    >>> handler.value.record_batch(0, batch_size=2)
    >>> handler.restore()
    >>> handler.value.state_dict()
    {'epoch': 0, 'processed_num': 0}
    """


Registry = list[tuple[type, Callable[[Any], StateHandler]]]
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Returns pairs of a type and the handler of its values; the first match is used.

    Examples
    --------
    >>> from ringcomm.torch.elastic.state import get_handler_registry
    >>> [kind.__name__ for kind, _ in get_handler_registry()]
    ['Module', 'Optimizer', 'ElasticSampler']
    """
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replaces the registry of handlers; ``TorchState`` uses it for values of further types.

    Parameters
    ----------
    registry : list[tuple[type, Callable[[Any], StateHandler]]]
        Pairs of a type and the handler of its values; the first match is used.

    Examples
    --------
    >>> from ringcomm.torch.elastic import state
    >>> registry = state.get_handler_registry()
    >>> state.set_handler_registry([*registry, (bytearray, state.StateHandler)])
    >>> state.set_handler_registry(registry)
    """
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

    Parameters
    ----------
    model : torch.nn.Module | None
        A model. If the script broadcasts the parameters, create the state after that.
    optimizer : torch.optim.Optimizer | None
        The optimizer, distributed or not.
    **kwargs : Any
        Further values. ``state_dict`` saves the values that have this method (learning-rate
        schedulers, GradScaler, more models and optimizers, `ElasticSampler`). All other values
        (epoch=0, batch=0) are copied.

    Examples
    --------
    >>> state = hvd.elastic.TorchState(torch.nn.Linear(1, 1), epoch=rank)
    >>> state.sync()
    >>> state.epoch
    0
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
        self._synchronize_devices()
        return {
            "attributes": super().contents(),
            "values": {name: handler.contents() for name, handler in self._handlers.items()},
        }

    def _synchronize_devices(self) -> None:
        """Blocks until the devices of the state's tensors have completed the work of all streams.

        Call it before a save, so that the saved values are final. Call it before a restore, so that
        no earlier kernel overwrites the restored values.
        """
        states = [handler.contents() for handler in self._handlers.values() if isinstance(handler, _WithStateDict)]
        tensors = [
            tensor for tensor in tree_flatten((states, super().contents()))[0] if isinstance(tensor, torch.Tensor)
        ]
        for device in {tensor.device for tensor in tensors if not tensor.is_cpu}:
            device_module(device).synchronize(device)

    def put_back(self, contents: Any) -> None:
        self._synchronize_devices()
        super().put_back(contents["attributes"])
        if set(contents["values"]) != set(self._handlers):
            raise ValueError(
                f"the saved state has the values {sorted(contents['values'])}, but this TorchState has "
                f"{sorted(self._handlers)}: construct it with the same arguments"
            )
        for name, handler in self._handlers.items():
            handler.put_back(contents["values"][name])
        self._synchronize_devices()

    def sync(self) -> None:
        self._synchronize_devices()
        for handler in self._handlers.values():
            handler.sync()
        attributes = broadcast_object(super().contents(), 0, "elastic.attributes")
        super().put_back(attributes)
        self.save()
