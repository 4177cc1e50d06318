"""Detects writes to gradients between backward and step.

Most writes increment the tensor's version (`GradientWatch`). But ``.grad.data``, ``.grad.numpy()``
and similar accesses expose memory without autograd's knowledge. A script must not write to a
gradient that is in flight. So the gradient's ``__class__`` is replaced during that time, which
costs no copy and no new object. These accesses then return a copy, and later changes to the copy
show whether the script wrote to it.

In the first steps no gradient is sent during backward, and these accesses return the gradient's
memory. If the script writes to it, gradients are never sent during backward in later steps.
"""

from __future__ import annotations

from typing import Any

import torch

_exposed: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}  # by id: memory that a script got, and a copy


class GradientWatch:
    """Detects if a gradient was only added to since `record`, or if it was replaced or changed.

    Autograd adds in place, which increments the tensor's version by one. Other changes differ in
    version, object or address. ``GradScaler.unscale_`` and writes to ``.data`` leave no trace.
    """

    __slots__ = ("_address", "_identity", "_version")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._identity, self._address, self._version = 0, 0, -1

    def record(self, gradient: torch.Tensor) -> None:
        self._identity, self._version = id(gradient), gradient._version
        self._address = 0 if gradient.layout != torch.strided else gradient.data_ptr()

    def has_writes(self, gradient: torch.Tensor, count: int) -> bool:
        """Returns True if it is the gradient of `record`, and was written `count` times since."""
        same = id(gradient) == self._identity and gradient._version == self._version + count
        return same and (gradient.layout != torch.strided or gradient.data_ptr() == self._address)


class GradientInFlight(torch.Tensor):
    """A gradient that is being sent to the other ranks."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl  # results are plain tensors

    def _memory(self) -> torch.Tensor:
        """Returns the memory that a script gets: a copy."""
        return torch.Tensor.clone(self)

    def _expose(self) -> torch.Tensor:
        memory = self._memory()
        _exposed.setdefault(id(self), []).append((memory, memory.clone()))
        return memory

    @property
    def data(self) -> Any:
        return self._expose()

    @data.setter
    def data(self, value: Any) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    def detach(self) -> Any:
        return self._expose()

    def numpy(self, **how: Any) -> Any:
        return self._expose().numpy(**how)

    def __dlpack__(self, *arguments: Any, **how: Any) -> Any:
        return self._expose().__dlpack__(*arguments, **how)

    def __deepcopy__(self, memo: Any) -> Any:
        return torch.Tensor.clone(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return torch.Tensor.clone(self).__reduce_ex__(protocol)

    def __repr__(self, **how: Any) -> Any:  # type: ignore[override]
        return torch.Tensor.clone(self).__repr__(**how)


class WatchedGradient(GradientInFlight):
    """A gradient that is not sent before the step: accesses return its memory itself."""

    def _memory(self) -> torch.Tensor:
        return torch.Tensor.detach(self)


def take_exposed(gradient: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns the memory that the script got from this gradient, and copies from that time."""
    return _exposed.pop(id(gradient), []) if _exposed else []


def was_written(exposed: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Returns True if the script has changed any of that memory, compared bit by bit."""
    return any(not torch.equal(_bits(now), _bits(before)) for now, before in exposed)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
