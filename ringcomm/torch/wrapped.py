"""How an optimizer becomes a distributed one: an object of a subclass of its own class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ringcomm.torch.hooked import HookedParameters

MARK = "_is_distributed_by_ringcomm"  # an attribute of the classes that DistributedOptimizer makes


def taking_the_step(step: Any) -> Any:
    """The base's step runs the step hooks and the profiler's mark; torch would else run them around ours too."""
    step.hooked = True
    return step


class DistributedOptimizerBase(torch.optim.Optimizer):
    """What is added to the class of an optimizer whose gradients, or what comes of them, are reduced in every step."""

    _base: Any  # the optimizer's own class
    _reducer: HookedParameters | None  # None where there is nobody to reduce with
    _parameter_names: dict[torch.Tensor, str]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own; call it on all ranks. The new parameters are reduced from the next step on."""
        self._base.add_param_group(self, param_group)
        group = len(self.param_groups) - 1
        new = [
            (f"allreduce.noname.{group}.{i}", p)
            for i, p in enumerate(self.param_groups[group]["params"])
            if p not in self._parameter_names
        ]
        self._parameter_names.update((p, name) for name, p in new)
        if self._reducer is not None:
            self._reducer.add(new)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As the optimizer's own. Ranks compare their parameters as they are at the next step (`ringcomm.replicas`);
        one rank alone may call this."""
        if self._reducer is not None:
            self._reducer.replicas.due = True
        return self._base.state_dict(self, *args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add up before a step's reduction."""
        self.backward_passes_per_step = passes
        if self._reducer is not None:
            self._reducer.settings.passes = passes


class SkipsSynchronize:
    """What is added where ``synchronize()`` may be called before ``step()``."""

    _should_synchronize = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, ``step()`` takes the gradients as they are, because ``synchronize()`` has been called::

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True


def wrapped(optimizer: torch.optim.Optimizer, additions: type[torch.optim.Optimizer]) -> Any:
    """The optimizer again, as an object of a subclass of its class, with what `additions` and its bases hold.

    All is shared and not copied: a scheduler or script that holds the first optimizer still acts on this one. But a
    scheduler made before has put a wrapper of the first one's step into that instance, which is not for this one.
    """
    base = type(optimizer)
    contents: dict[str, Any] = {}
    for one in reversed(additions.__mro__):
        if one not in torch.optim.Optimizer.__mro__:
            contents |= vars(one)
    own = {key: value for key, value in contents.items() if key not in ("__dict__", "__weakref__")}
    made: Any = object.__new__(type(base.__name__, (base,), own | {"_base": base, MARK: True}))
    made.__dict__.update((key, value) for key, value in vars(optimizer).items() if key != "step")
    return made
