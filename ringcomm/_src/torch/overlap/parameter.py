"""Detects the first use of a parameter after a step of the optimizer.

A parameter's ``__class__`` is replaced until then, which costs no copy and no new object. torch
calls ``__torch_function__`` of the class for each function that gets the parameter as an argument,
also within lists, and for each of its methods and attributes. So there is no need to know the
modules that use a parameter, and each reader gets its new value: tied weights, ``state_dict``, a
moving average of the weights.

Code that does not use torch's Python functions is not detected: TorchScript, C++ extensions, a
NumPy view from before the step. If this code reads the parameter in a forward pass, the next
backward pass computes a gradient of a parameter that was not used, which is an error (`step`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

COMPILED = (
    "overlap_forward=True cannot be combined with torch.compile, which reads parameters without calling Python. Use "
    "overlap_forward=False, or do not compile the model"
)

_uses: dict[int, Callable[[torch.Tensor], object]] = {}  # by id of a parameter
_suspended: set[int] = set()  # ids of parameters in a block of `unwatched`
lock = threading.RLock()  # held while a use is handled, and by steps

# Attributes and methods that do not read elements.
_FACTS = {
    *(getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad")),
    *(getattr(torch.Tensor, name).__get__ for name in ("is_leaf", "is_cuda", "is_sparse", "is_quantized", "is_meta")),
    *(getattr(torch.Tensor, name) for name in ("size", "dim", "numel", "stride", "element_size", "is_contiguous")),
    *(getattr(torch.Tensor, name) for name in ("is_floating_point", "is_complex", "__len__", "__hash__")),
}


class ParameterInFlight(torch.nn.Parameter):
    """A parameter that waits for the optimizer's step, or is watched for its first use."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_compiling():
            raise RuntimeError(COMPILED)
        kwargs = kwargs or {}
        if function in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs)
        for parameter in [*_found(args), *_found(kwargs.values())]:
            use(parameter)
        return function(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        return use(self).__deepcopy__(memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return use(self).__reduce_ex__(protocol)

    def __repr__(self, **how: Any) -> str:  # type: ignore[override]
        return use(self).__repr__(**how)


def _found(values: Any) -> Iterator[ParameterInFlight]:
    for value in values:
        if type(value) is ParameterInFlight:
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _found(value)
        elif isinstance(value, dict):
            yield from _found(value.values())


def use(parameter: torch.Tensor) -> torch.Tensor:
    """Calls the function of `watch`, if the parameter is still watched. Returns the parameter."""
    with lock:
        if type(parameter) is ParameterInFlight:
            on_use = _uses[id(parameter)]
            release(parameter)
            on_use(parameter)
    return parameter


def watch(parameter: torch.Tensor, on_use: Callable[[torch.Tensor], object]) -> bool:
    """Calls the function at the parameter's next use. Returns False if this is not possible.

    The function gets the parameter with its original class.
    """
    if type(parameter) is not torch.nn.Parameter and not is_watched(parameter):
        return False
    _uses[id(parameter)] = on_use
    parameter.__class__ = ParameterInFlight
    return True


def release(parameter: torch.Tensor) -> None:
    """Ends `watch`."""
    _suspended.discard(id(parameter))
    if type(parameter) is ParameterInFlight:
        parameter.__class__ = torch.nn.Parameter  # type: ignore[assignment]
        del _uses[id(parameter)]


def is_watched(parameter: torch.Tensor) -> bool:
    return type(parameter) is ParameterInFlight


@contextmanager
def unwatched(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """Suspends `watch` within the block. Parameters that are released within stay released."""
    watched = [(parameter, _uses[id(parameter)]) for parameter in parameters if is_watched(parameter)]
    for parameter, _ in watched:
        release(parameter)
        _suspended.add(id(parameter))
    try:
        yield
    finally:
        for parameter, on_use in watched:
            if id(parameter) in _suspended:
                _suspended.discard(id(parameter))
                watch(parameter, on_use)
