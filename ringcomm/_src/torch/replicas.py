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

    They compare in any step in which a rank is `due`. Ranks exchange that in the step's agreement,
    and compare before the optimizer uses the gradients: they compare the parameters that the step
    before has left. So no rank can wait for a rank that does not compare, however differently their
    programs call ``state_dict()``.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._replicas = replicas.Replicas(f"DistributedOptimizer {settings.name!r}")
        self._every: int | None = None
        self._steps = 0  # steps taken
        self._next = 1  # number of steps after which to compare next
        self._asked = False

    @property
    def due(self) -> bool:
        """True if this rank wants a comparison in the next step."""
        if self._every is None:
            self._every = replicas.every(self._settings.process_set)
        return self._every > 0 and (self._asked or self._steps >= self._next)

    @due.setter
    def due(self, asked: bool) -> None:
        self._asked = asked

    def step(self, slots: Sequence[Slot], compares: bool) -> None:
        """Runs in every step with the ranks' common decision. Collective if they compare."""
        try:
            if compares:
                self._asked, self._next = False, self._steps + (self._every or 0)
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
    """Returns uint64 digests. Those of device tensors are computed on the device, by another
    function than the host's."""
    whole = [parameter.contiguous() for parameter in parameters]
    found = np.empty(len(whole), np.uint64)
    here = [i for i, one in enumerate(whole) if one.is_cpu]
    found[here] = replicas.digests_at([(whole[i].data_ptr(), whole[i].numel() * whole[i].element_size()) for i in here])
    there = [i for i, one in enumerate(whole) if not one.is_cpu]
    made = [_digest_on_device(whole[i]) for i in there]
    for i, one in zip(there, made, strict=True):
        found[i] = np.int64(one.item()).view(np.uint64)
    return found


def _digest_on_device(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the sum modulo 2⁶⁴ of elements (as integers) times pseudo-random odd numbers of their indices."""
    flat = (torch.view_as_real(parameter) if parameter.is_complex() else parameter).reshape(-1)
    as_integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for first in range(0, flat.numel(), _CHUNK):
        part = flat[first : first + _CHUNK].view(as_integers).to(torch.int64)
        places = torch.arange(first + 1, first + 1 + part.numel(), device=flat.device)
        total += (part * _odd_numbers(places)).sum()
    return total


def _odd_numbers(places: torch.Tensor) -> torch.Tensor:
    mixed = places * -0x61C8864680B583EB  # SplitMix64's mixing, with its constants as signed numbers
    mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
    return (mixed ^ (mixed >> 27)) * 2 + 1


def values_of(parameter: torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns the values on the host, in a NumPy dtype that supports subtraction."""
    flat = (torch.view_as_real(parameter) if parameter.is_complex() else parameter).reshape(-1).cpu()
    narrow = flat.dtype == torch.float32 or flat.element_size() <= 2
    return flat.to(torch.float32 if narrow else torch.float64).numpy()
