"""Gradients between backward and step: writes to them that raise no version are found.

``.grad.data``, ``.grad.numpy()`` and the like give memory away without autograd's knowing. While a gradient is on its
way, that memory is not the script's to write to. So the object's class is another one for that time (its
``__class__`` is set, which costs no copy and no new object): these ways give a copy, and what becomes of the copy tells
whether the script has only read. Before the optimizer sends gradients early, they give the memory itself, and writes
keep gradients from being sent early for good.
"""

from __future__ import annotations

from typing import Any

import torch

_lent: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}  # by id of a gradient: memory given away, as it was then


class GradientInFlight(torch.Tensor):
    """A gradient that is on its way to the other ranks."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl  # results are plain tensors

    def _memory(self) -> torch.Tensor:
        """Returns the memory that a script gets: a copy."""
        return torch.Tensor.clone(self)

    def _lend(self) -> torch.Tensor:
        memory = self._memory()
        _lent.setdefault(id(self), []).append((memory, memory.clone()))
        return memory

    @property
    def data(self) -> Any:
        return self._lend()

    @data.setter
    def data(self, value: Any) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    def detach(self) -> Any:
        return self._lend()

    def numpy(self, **how: Any) -> Any:
        return self._lend().numpy(**how)

    def __dlpack__(self, *arguments: Any, **how: Any) -> Any:
        return self._lend().__dlpack__(*arguments, **how)

    def __deepcopy__(self, memo: Any) -> Any:
        return torch.Tensor.clone(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return torch.Tensor.clone(self).__reduce_ex__(protocol)

    def __repr__(self, **how: Any) -> Any:  # type: ignore[override]
        return torch.Tensor.clone(self).__repr__(**how)


class WatchedGradient(GradientInFlight):
    """A gradient that stays here until the step."""

    def _memory(self) -> torch.Tensor:
        return torch.Tensor.detach(self)


def take_lent(gradient: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns the memory that the script got from this gradient, each with a copy of what it held then."""
    return _lent.pop(id(gradient), []) if _lent else []


def was_written(lent: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Returns True if the script has changed any of it, compared bit by bit."""
    return any(not torch.equal(_bits(now), _bits(before)) for now, before in lent)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
