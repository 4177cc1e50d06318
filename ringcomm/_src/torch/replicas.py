"""The replica check (:mod:`ringcomm._src.training.replicas`) of an optimizer's parameters.

`ReplicaCheck` decides when ranks compare, and computes digests of torch tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ringcomm._src.torch.arguments import Settings
from ringcomm._src.torch.slot import Slot
from ringcomm._src.training import replicas

_CHUNK = 1 << 22  # elements of a device parameter that are digested at a time


class ReplicaCheck:
    """Decides when the ranks of one optimizer compare their parameters, and compares them.

    All ranks compare in each step in which any rank is `due`, for example because it has called
    ``state_dict()``. They exchange their `due` in the agreement of the step, so no rank waits for a
    rank that does not compare. Ranks compare before the optimizer uses the gradients, so the
    parameters are those after the previous step.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._replicas = replicas.Replicas(f"DistributedOptimizer {settings.name!r}")
        self._every: int | None = None
        self._steps = 0  # steps taken
        self._next = 1  # number of steps after which the next comparison is due
        self._requested = False

    @property
    def due(self) -> bool:
        """True if this rank wants a comparison in the next step."""
        if self._every is None:
            self._every = replicas.every(self._settings.process_set)
        return self._every > 0 and (self._requested or self._steps >= self._next)

    @due.setter
    def due(self, requested: bool) -> None:
        self._requested = requested

    def step(self, slots: Sequence[Slot], compares: bool) -> None:
        """Compares if the ranks have decided so. Call it in every step. Collective if `compares`."""
        try:
            if compares:
                self._requested, self._next = False, self._steps + (self._every or 0)
                self._compare(slots)
        finally:
            self._steps += 1

    def _compare(self, slots: Sequence[Slot]) -> None:
        parameters = [slot.parameter.detach() for slot in slots]
        self._replicas.compare(
            self._settings.process_set,
            self._settings.name,
            self._steps,
            [slot.name for slot in slots],
            digests_of(parameters),
            lambda index: values_of(parameters[index]),
        )


def digests_of(parameters: Sequence[torch.Tensor]) -> np.ndarray[Any, Any]:
    """Returns uint64 digests. A device computes digests of its tensors, by another algorithm."""
    tensors = [parameter.contiguous() for parameter in parameters]
    found = np.empty(len(tensors), np.uint64)
    on_host = [i for i, parameter in enumerate(tensors) if parameter.is_cpu]
    found[on_host] = replicas.digests_at(
        [(tensors[i].data_ptr(), tensors[i].numel() * tensors[i].element_size()) for i in on_host]
    )
    on_device = [i for i, parameter in enumerate(tensors) if not parameter.is_cpu]
    made = [_digest_on_device(tensors[i]) for i in on_device]
    for i, digest in zip(on_device, made, strict=True):
        found[i] = np.int64(digest.item()).view(np.uint64)
    return found


def _digest_on_device(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the sum, modulo 2⁶⁴, of elements as integers times odd numbers from their indices."""
    flat = (torch.view_as_real(parameter) if parameter.is_complex() else parameter).reshape(-1)
    as_integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for first in range(0, flat.numel(), _CHUNK):
        part = flat[first : first + _CHUNK].view(as_integers).to(torch.int64)
        indices = torch.arange(first + 1, first + 1 + part.numel(), device=flat.device)
        total += (part * _odd_numbers(indices)).sum()
    return total


def _odd_numbers(indices: torch.Tensor) -> torch.Tensor:
    mixed = indices * -0x61C8864680B583EB  # SplitMix64's mixing, with its constants as signed numbers
    mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
    return (mixed ^ (mixed >> 27)) * 2 + 1


def values_of(parameter: torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns the values on the host, in a NumPy dtype that supports subtraction."""
    flat = (torch.view_as_real(parameter) if parameter.is_complex() else parameter).reshape(-1).cpu()
    narrow = flat.dtype == torch.float32 or flat.element_size() <= 2
    return flat.to(torch.float32 if narrow else torch.float64).numpy()
