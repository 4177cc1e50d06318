"""Hogwild: all ranks of a host train the same weights in shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ringcomm._src.arrays.numpy_kind import CoreMemory
from ringcomm._src.core import _core
from ringcomm._src.decentralized.host_averaging import HostAveraging, host_sets
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
        flat = replica.broadcast_initial(0, f"{name}.start", process_set)
        process_set, leaders = host_sets(process_set)
        self._tensors = tensors
        self.workers = Workers(name, process_set, on_loss)
        offsets = np.cumsum(
            [_LINE] + [-(-tensor.numel() * tensor.element_size() // _LINE) * _LINE for tensor in tensors]
        ).tolist()
        first = self.workers.rank == 0
        self._memory = self.workers.allocate(offsets[-1]) if first else None
        (address,) = self.workers.addresses([0], self._memory, "weights")
        self.lock = _core.HostLock(address, self.workers.node, self.workers.rank)
        for tensor, offset in zip(tensors, offsets, strict=False):
            nbytes = tensor.numel() * tensor.element_size()
            if nbytes == 0:
                continue
            memory = torch.from_numpy(np.asarray(CoreMemory(address + offset, nbytes, self._memory)))
            shared = memory.view(tensor.dtype).as_strided(tensor.shape, dense_strides(tensor))
            if first:
                shared.copy_(tensor.detach())
            tensor.data = shared
        self.workers.barrier()
        read, put = (lambda into: replica.read(0, into)), (lambda weights: replica.write(0, weights))
        self._host_averaging = HostAveraging(name, leaders, flat, every, read, replica.add, put)
        self.exchanges = 0
        super().__init__(name, process_set, self._leave)

    def stepped(self) -> None:
        self.steps += 1
        self.workers.count(self.steps)
        self.workers.advance(self.steps)
        self.workers.check()
        self._host_averaging.stepped()

    def _finish(self) -> None:
        self.workers.finish(self._host_averaging.participate)
        self._host_averaging.finish()
        self.workers.barrier()
        self._leave_shared_memory()
        self.workers.barrier()

    def _leave(self) -> None:
        self.workers.leave()
        self._leave_shared_memory()

    def _leave_shared_memory(self) -> None:
        for tensor in self._tensors:
            tensor.data = tensor.data.clone()

    @property
    def updates(self) -> int:
        """Number of steps of all ranks."""
        return self.workers.updates

    def stats(self) -> dict[str, Any]:
        return self._stats(self.steps, self.workers.waited, 0, lost=self.workers.lost(), **self._host_averaging.stats())

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

    Nothing is sent, and no rank waits. Each rank has a separate optimizer state. Steps of other
    ranks are visible while a gradient is computed; occasionally a part of a step is lost. The
    parameters are in shared memory until ``finish()``, and then in each rank's private memory.

    Source: Recht, Re, Wright and Niu, arXiv:1106.5730.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer except LBFGS. Its kernels write the shared weights. ``foreach=False`` needs
        the fewest passes over them.
    update : str
        "racy": ranks step at any time. "locked": one rank of a host steps at a time.
    model : torch.nn.Module | None
        Its floating-point buffers (BatchNorm's statistics) are shared too.
    every : int | str
        With several hosts, each host has separate weights. After this number of steps of its first
        rank (or a time, for example "200ms"), a host sends its weights. To its current weights it
        then adds the difference between the mean of all hosts' weights and the weights sent.
    on_loss : str
        If all ranks are on one host, selects the effect of the death of a rank: "end" (the other
        ranks get an error) or "continue" (they continue; needs ``ringrun --survive``).
    named_parameters : Iterable[tuple[str, torch.Tensor]] | None
        Parameter names for error messages, as in DistributedOptimizer.
    process_set : ProcessSet
        The ranks that take part. With several hosts, the set must contain all ranks.

    Returns
    -------
    torch.optim.Optimizer
        An object of a subclass of the optimizer's class. Use it in a ``with`` statement, or
        call ``finish()`` after the last step.

    Raises
    ------
    ValueError
        Arguments are invalid; parameters are not in CPU memory.
    MismatchError
        Every rank gets the error if parameters or settings differ between ranks.
    UnsupportedError
        Ranks of a host share no memory.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> with hvd.Hogwild(torch.optim.SGD([weight], lr=1.0), update="locked") as optimizer:
    ...     weight.sum().backward()
    ...     _ = optimizer.step()
    >>> weight.tolist()  # both ranks have changed the same weights
    [-2.0, -2.0]
    """
    if update not in ("racy", "locked"):
        raise ValueError(f'update={update!r} is not supported: use "racy" or "locked"')
    made, name, parameters = relaxed(
        optimizer, "Hogwild", named_parameters, process_set, _Hogwild, update=update, every=every
    )
    tensors = [*parameters, *statistics_of(model)]
    elsewhere = {str(tensor.device) for tensor in tensors if tensor.device.type != "cpu"}
    if elsewhere:
        raise ValueError(f"Hogwild: weights must be in CPU memory, not on {', '.join(sorted(elsewhere))}")
    made._method = SharedWeights(name, tensors, process_set, on_loss, every)
    made._locked = update == "locked"
    return made
