"""A call of an aten operation, made on torch's meta device and on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

ON_HOST = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")  # they take indices on the CPU


class Call:
    """A call of an aten operation: flat arguments, those that it writes, and new results."""

    def __init__(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
        self.operation = operation
        self._flat, self._spec = tree_flatten((args, kwargs))
        self.device = next((one.device.index for one in self._tensors() if one.device.type == name), None)
        self._name = name
        schema = operation._schema
        given = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | kwargs
        writes = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        self._by_alias = {tuple(a.alias_info.before_set): given[a.name] for a in writes if a.name in given}
        self.written = [one for one in tree_flatten(list(self._by_alias.values()))[0] if isinstance(one, torch.Tensor)]
        self.new_results = [r for r in schema.returns if r.alias_info is None]
        self._returns = schema.returns
        self.flat = partial(_flat, len(schema.returns) == 1)
        self._host: list[Any] = []
        self._meta: list[Any] = []
        self._refuse_mixed()

    def _tensors(self) -> list[torch.Tensor]:
        return [one for one in self._flat if isinstance(one, torch.Tensor)]

    def _refuse_mixed(self) -> None:
        allowed = self.operation._schema.name.split("::")[-1] in ON_HOST
        for one in self._tensors():
            fits = one.device.type == self._name or one.dim() == 0 or allowed
            if not fits or (one.device.type != self._name and any(one is mine for mine in self.written)):
                raise RuntimeError(f"{self.operation}: expected all tensors on {self._name}, found one on {one.device}")

    def _with(self, change: Callable[[torch.Tensor], torch.Tensor], device: str) -> tuple[list[Any], Any]:
        as_device = lambda one: torch.device(device) if isinstance(one, torch.device) else one  # noqa: E731
        flat = [change(one) if isinstance(one, torch.Tensor) else as_device(one) for one in self._flat]
        return flat, tree_unflatten(flat, self._spec)

    def on_meta(self) -> Any:
        like = lambda one: torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device="meta")  # noqa: E731
        self._meta, (args, kwargs) = self._with(like, "meta")
        return self.operation(*args, **kwargs)

    def resize_as_meta(self, resize: Callable[[torch.Tensor, Any], Any]) -> None:
        """Resizes an `out=` of another size to the size of the result, as torch does."""
        for mine, meta in zip(self._flat, self._meta, strict=False):
            if (
                isinstance(mine, torch.Tensor)
                and mine.size() != meta.size()
                and any(mine is one for one in self.written)
            ):
                resize(mine, meta.size())

    def on_host(self, view: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
        change = lambda one: view(one) if one.device.type == self._name else one.clone()  # noqa: E731
        self._host, (args, kwargs) = self._with(change, "cpu")
        operation = self.operation  # not self: a queued function must not keep the caller's tensors alive
        return lambda: operation(*args, **kwargs)

    def host_written(self) -> list[torch.Tensor]:
        number = {id(mine): host for mine, host in zip(self._flat, self._host, strict=True)}
        return [number[id(one)] for one in self.written]

    def new_of(self, results: Any) -> list[tuple[int, torch.Tensor]]:
        """Returns the results, among the flat ones, that are not arguments."""
        if not self.new_results:
            return []
        written = len(self._returns) - len(self.new_results)
        flat = self.flat(results)
        first = written if written and self._returns[0].alias_info is not None else 0
        return [(n, one) for n, one in enumerate(flat) if n >= first and isinstance(one, torch.Tensor)]

    def returned(self, results: Any) -> Any:
        """Returns the results; arguments that the operation returns are the caller's tensors."""
        own = [self._by_alias.get(tuple(r.alias_info.before_set)) if r.alias_info else None for r in self._returns]
        if not self._returns:
            return None
        if len(own) == 1:
            return own[0] if own[0] is not None else results
        return tuple(mine if mine is not None else one for mine, one in zip(own, results, strict=True))


def _flat(single: bool, results: Any) -> list[Any]:
    return tree_flatten([results] if single else list(results or ()), is_leaf=lambda one: one is None)[0]
