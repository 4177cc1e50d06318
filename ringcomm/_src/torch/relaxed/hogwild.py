"""Hogwild: all ranks of a host train the same weights in shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ringcomm._src.arrays.numpy_kind import CoreMemory
from ringcomm._src.core import _core
from ringcomm._src.decentralized.across import Across, host_sets
from ringcomm._src.decentralized.method import Method
from ringcomm._src.decentralized.workers import Workers
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.relaxed.optimizer import RelaxedOptimizer, relaxed
from ringcomm._src.torch.relaxed.replica import TensorReplica, statistics_of
from ringcomm._src.torch.slices import dense_strides

_LINE = 64  # bytes: tensors begin at cache lines


class SharedWeights(Method):
    """The method behind Hogwild: moves tensors into shared memory until all ranks have finished."""

    has_own_model = True  # the shared weights are the model at any time

    def __init__(
        self, name: str, tensors: list[torch.Tensor], process_set: Any, on_loss: str, every: int | str
    ) -> None:
        replica = TensorReplica(tensors)
        flat = replica.begin_alike(0, f"{name}.start", process_set)
        process_set, leaders = host_sets(process_set)
        self._tensors = tensors
        self.workers = Workers(name, process_set, on_loss)
        offsets = np.cumsum(
            [_LINE] + [-(-one.numel() * one.element_size() // _LINE) * _LINE for one in tensors]
        ).tolist()
        first = self.workers.rank == 0
        self._memory = self.workers.allocate(offsets[-1]) if first else None
        (address,) = self.workers.addresses([0], self._memory, "weights")
        self.lock = _core.HostLock(address, self.workers.node, self.workers.rank)
        for one, offset in zip(tensors, offsets, strict=False):
            nbytes = one.numel() * one.element_size()
            if nbytes == 0:
                continue
            memory = torch.from_numpy(np.asarray(CoreMemory(address + offset, nbytes, self._memory)))
            shared = memory.view(one.dtype).as_strided(one.shape, dense_strides(one))
            if first:
                shared.copy_(one.detach())
            one.data = shared
        self.workers.meet()
        read, put = (lambda into: replica.read(0, into)), (lambda weights: replica.write(0, weights))
        self._across = Across(name, leaders, flat, every, read, replica.add, put)
        self.exchanges = 0
        super().__init__(name, process_set, self._leave)

    def stepped(self) -> None:
        self.steps += 1
        self.workers.count(self.steps)
        self.workers.advance(self.steps)
        self.workers.check()
        self._across.stepped()

    def _finish(self) -> None:
        self.workers.finish(self._across.answer)
        self._across.finish()
        self.workers.meet()
        self._take_back()
        self.workers.meet()

    def _leave(self) -> None:
        self.workers.leave()
        self._take_back()

    def _take_back(self) -> None:
        for one in self._tensors:
            one.data = one.data.clone()

    @property
    def updates(self) -> int:
        """Number of steps of all ranks."""
        return self.workers.updates

    def stats(self) -> dict[str, Any]:
        return self._stats(self.steps, self.workers.waited, 0, lost=self.workers.lost(), **self._across.stats())

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.workers.count(self.steps)


class _Hogwild(RelaxedOptimizer):
    """Base class that Hogwild adds to the optimizer's class."""

    _locked: bool

    def _take(self, *arguments: Any, **kwargs: Any) -> Any:
        if not self._locked:
            return self._base.step(self, *arguments, **kwargs)
        with self._method.lock:
            return self._base.step(self, *arguments, **kwargs)


def Hogwild(
    optimizer: torch.optim.Optimizer,
    update: str = "racy",
    model: torch.nn.Module | None = None,
    every: int | str = 16,
    on_loss: str = "end",
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that steps on weights in memory that all ranks of a host share.

    Nothing is sent, and no rank waits. Each rank has a separate optimizer state. Steps of other ranks are
    visible while a gradient is computed; occasionally a part of a step is lost. Between the constructor
    and ``finish()`` the parameters are in shared memory, afterwards in each rank's own memory.

    Source: Recht, Re, Wright and Niu, arXiv:1106.5730.

    Args:
        optimizer: any except LBFGS. Its kernels write the weights; ``foreach=False`` needs the fewest
            passes.
        update: "racy", or "locked": one rank steps at a time.
        model: its floating-point buffers (BatchNorm's statistics) are shared too.
        every: with several hosts, each host has separate weights. After this number of steps of a host's
            first rank (or a time such as "200ms"), the weights become the mean of all hosts': the
            difference between the mean and the weights sent is added.
        on_loss: on one host: "end", or "continue": ranks continue after another rank has died, if the
            launcher lets them.
        named_parameters: as for DistributedOptimizer; names for errors.
        process_set: the ranks; with several hosts, all.

    Raises:
        ValueError: arguments are invalid; parameters are not in CPU memory. MismatchError: ranks differ.
        UnsupportedError: ranks of a host share no memory.
    """
    if update not in ("racy", "locked"):
        raise ValueError(f'update={update!r}: "racy" or "locked"')
    made, name, parameters = relaxed(
        optimizer, "Hogwild", named_parameters, process_set, _Hogwild, update=update, every=every
    )
    tensors = [*parameters, *statistics_of(model)]
    elsewhere = {str(one.device) for one in tensors if one.device.type != "cpu"}
    if elsewhere:
        raise ValueError(f"Hogwild: weights on {', '.join(sorted(elsewhere))}; it is for CPU memory")
    made._method = SharedWeights(name, tensors, process_set, on_loss, every)
    made._locked = update == "locked"
    return made
