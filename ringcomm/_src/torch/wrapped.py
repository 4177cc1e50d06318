"""Makes an optimizer distributed: an object of a subclass of the optimizer's class.

`optimizer`, `adasum_optimizer` and `relaxed` supply the base classes with the added methods.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from ringcomm._src.torch import foreign_steps
from ringcomm._src.torch.hooked import HookedParameters

MARK = "_is_distributed_by_ringcomm"  # an attribute of the classes that DistributedOptimizer makes


def delegating_step(step: Any) -> Any:
    """Marks a step that calls the base's step, so that torch runs step hooks only once."""
    step.hooked = True
    return step


def require_closure(closure: Any) -> None:
    """Raises TypeError for ``step(loss)``, which optimizers without closures would not detect."""
    if closure is not None and not callable(closure):
        raise TypeError(f"step() takes a closure, a function that computes the loss, not a {type(closure).__name__}")


class Wrapper(torch.optim.Optimizer):
    """Base class that `wrapped` adds to an optimizer that replaces another and shares its state."""

    _base: Any  # the optimizer's original class
    _inner: torch.optim.Optimizer  # the optimizer that was wrapped
    _shared: dict[str, Any]  # state and groups when they were last shared
    _parameter_ids: list[int]  # ids of the parameters in the groups

    def _share_groups(self) -> None:
        """Gives both optimizers the newest state and groups, after ``load_state_dict`` of one."""
        for key, last in self._shared.items():
            mine, theirs = vars(self)[key], vars(self._inner)[key]
            if mine is not theirs:
                newest = theirs if mine is last else mine
                vars(self)[key] = vars(self._inner)[key] = self._shared[key] = newest

    def _groups_changed(self) -> bool:
        """Returns True if parameters were added or removed, in any way, since the last call."""
        self._share_groups()
        ids = [id(p) for group in self.param_groups for p in group["params"]]
        changed, self._parameter_ids = ids != self._parameter_ids, ids
        return changed

    def _before_step_of(self, optimizer: Any, parameters: set[int] | None) -> None:
        """Called before an optimizer steps; `parameters` as for `foreign_steps.watch`."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"a distributed {type(self).__name__} cannot be copied or pickled, because all ranks create it together: "
            "save state_dict(), and load it into another optimizer that DistributedOptimizer returned"
        )


class DistributedOptimizerBase(Wrapper):
    """Base class of optimizers that reduce gradients, or changes of parameters, in every step."""

    _reducer: HookedParameters | None  # None if there is no other rank to reduce with
    _parameter_names: dict[torch.Tensor, str]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Calls the optimizer's ``add_param_group``. Call it on all ranks.

        The new parameters are reduced from the next step on.
        """
        self._base.add_param_group(self, param_group)
        self._follow_groups()

    def _follow_groups(self) -> None:
        """Makes the reducer reduce the current parameters of the groups, which scripts may edit."""
        if not self._groups_changed():
            return
        before, self._parameter_names = self._parameter_names, {}
        used = set(before.values())
        for number, group in enumerate(self.param_groups):
            for position, parameter in enumerate(group["params"]):
                name = before.get(parameter, f"allreduce.noname.{number}.{position}")
                while parameter not in before and name in used:
                    name += ".new"
                used.add(name)
                self._parameter_names[parameter] = name
        if self._reducer is not None:
            self._reducer.follow([(name, parameter) for parameter, name in self._parameter_names.items()])

    def _before_step_of(self, optimizer: Any, parameters: set[int] | None) -> None:
        if self._reducer is None:
            return
        if getattr(optimizer, MARK, False) and optimizer is not self:
            return self._reducer.forget(parameters)
        names = self._reducer.unreduced(parameters)
        if names:
            raise AssertionError(
                f"{type(optimizer).__name__}.step() would use gradients of this rank only ({', '.join(names[:3])}): "
                "they have not been reduced. Step the optimizer that DistributedOptimizer returned, or call its "
                "synchronize() first, and step within its skip_synchronize()"
            )

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Calls the optimizer's ``state_dict``. A single rank may call it.

        All ranks compare their parameters at the next step (`ringcomm._src.training.replicas`).
        """
        if self._reducer is not None:
            self._reducer.replicas.due = True
        return self._base.state_dict(self, *args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of backward passes that add up before a reduction."""
        self.backward_passes_per_step = passes
        if self._reducer is not None:
            self._reducer.settings.passes = passes


class SkipsSynchronize:
    """Base class for optimizers that allow ``synchronize()`` before ``step()``."""

    _should_synchronize = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Makes ``step()`` use the gradients as they are, after ``synchronize()``.

        Examples
        --------
        ::

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
    """Returns the optimizer as an object of a subclass of its class, with `additions`' members.

    State is shared, not copied. So a scheduler or script that holds the given optimizer also acts
    on the new one. A scheduler may have set the attribute ``step`` of the given optimizer to a
    wrapper, which is not copied.
    """
    base = type(optimizer)
    contents: dict[str, Any] = {}
    for cls in reversed(additions.__mro__):
        if cls not in torch.optim.Optimizer.__mro__:
            contents |= vars(cls)
    own = {key: value for key, value in contents.items() if key not in ("__dict__", "__weakref__")}
    made: Any = object.__new__(type(base.__name__, (base,), own | {"_base": base, MARK: True}))
    made.__dict__.update((key, value) for key, value in vars(optimizer).items() if key != "step")
    made._inner, made._parameter_ids = optimizer, []
    made._shared = {"state": optimizer.state, "param_groups": optimizer.param_groups}
    made._groups_changed()
    reference = weakref.ref(made)  # both optimizers call the hook, because they share the list of hooks

    def share(_: Any) -> None:
        if (wrapper := reference()) is not None:
            wrapper._share_groups()

    optimizer.register_load_state_dict_post_hook(share)
    foreign_steps.watch(made)
    return made
