"""Asynchronous gossip between replicas in memory that the ranks of a host share.

`ringcomm.torch.Gossip` uses it for ``mode="async"``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ringcomm._src.core import _core
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.decentralized.shared_memory_method import SharedMemoryMethod
from ringcomm._src.decentralized.topology import Topology
from ringcomm._src.named.process_sets import ProcessSet


class AsyncGossip(SharedMemoryMethod):
    """The method that averages a replica with a random neighbour's after a step. Collective.

    It adds the step's change to this rank's shared replica. Then it replaces that replica and the
    neighbour's by their mean. It works by stripes of 16 KB, and locks both replicas' stripes
    meanwhile. No rank waits for another rank's step.

    Source: Lian et al., AD-PSGD, arXiv:1710.06952.
    """

    def __init__(
        self,
        name: str,
        replica: Replica[Any],
        topology: Topology,
        every: int,
        process_set: ProcessSet,
        on_loss: str = "end",
        seed: int = 0,
    ) -> None:
        super().__init__(name, replica, process_set, on_loss)
        self._every = every
        size, rank = self.workers.size, self.workers.rank
        period = range(topology.period(size))
        self._neighbours = sorted({neighbour for t in period for neighbour in topology.in_neighbors(rank, size, t)})
        self._random = random.Random(seed * size + rank)
        wide, count = self._flat.dtype == np.float64, len(self._flat)
        self._memory = self.workers.allocate(_core.Shard.bytes(count, wide, 0, 0))
        addresses = self.workers.addresses(list(range(size)), self._memory, "replicas")
        self._all = [
            _core.Shard(address, owner, count, wide, 0, 0, False, 0, 0, self.workers.node, rank)
            for owner, address in enumerate(addresses)
        ]
        self._all[rank].make(self._flat.ctypes.data)
        self._add, self._get = _core.RuleOptions("add", scale=1.0), _core.RuleOptions("get")
        self._put = _core.RuleOptions("put")
        # One tuple per meeting, for tests: the version of this rank's replica before the step was
        # added, the other rank, the versions of both replicas before the mean, and the version that
        # was read.
        self.log: list[tuple[int, int, int, int, int]] | None = None
        self.workers.barrier()

    def stepped(self) -> None:
        super().stepped()
        self.workers.advance(self.steps)
        if self.steps % self._every == 0:
            self.workers.check()
            live = [neighbour for neighbour in self._neighbours if self.workers.clocks.of(neighbour) is not None]
            self._average_with(self._random.choice(live) if live else None)

    def _average_with(self, other: int | None) -> None:
        """Adds this rank's change to its replica, averages with ``other``, and reads the result."""
        own, count = self._all[self.workers.rank], len(self._flat)
        change = self.replica.flat_copy(0)
        change -= self._flat
        added = own.apply(self._add, 0, count, change.ctypes.data, 0, 0)
        versions = (-1, -1)
        if other is not None:
            versions = own.average_with(self._all[other])
            self.bytes += change.nbytes
        read_version = own.apply(self._get, 0, count, 0, 0, self._flat.ctypes.data)
        if self.log is not None:
            self.log.append((added, -1 if other is None else other, *versions, read_version))
        self.distance = self.replica.distance(0, self._flat)
        self.replica.write(0, self._flat)
        self.replica.read(0, self._flat)  # writing rounds float16 weights; the next change is relative to these values
        self.exchanges += 1

    def exchange_now(self) -> None:
        """Replaces all replicas by their mean. Collective."""
        mean = self._mean()
        self._all[self.workers.rank].apply(self._put, 0, len(mean), mean.ctypes.data, 0, 0)
        self._flat[:] = mean
        self.replica.write(0, mean)
        self.workers.barrier()

    def _mean(self) -> Flat:
        """Returns the mean of the replicas of all live ranks, read in place. Collective."""
        self._average_with(None)
        self.workers.barrier()
        lost = {self.process_set.ranks.index(rank) for rank in self.workers.lost()}
        total, weights = np.zeros_like(self._flat), np.empty_like(self._flat)
        for rank, shard in enumerate(self._all):
            if rank not in lost:
                shard.apply(self._get, 0, len(weights), 0, 0, weights.ctypes.data)
                total += weights
        self.workers.barrier()
        return np.asarray(total / (len(self._all) - len(lost)), self._flat.dtype)

    def global_weights(self) -> AbstractContextManager[None]:
        return self.replica.temporarily([self._flat if self.finished else self._mean()])

    def _finish(self) -> None:
        self._average_with(None)
        self.workers.finish()
        self._flat[:] = self._mean()
        self.replica.write(0, self._flat)
        self.workers.barrier()

    def stats(self) -> dict[str, Any]:
        return super().stats() | {"broken_locks": self._all[self.workers.rank].broken()}

    def state(self) -> dict[str, Any]:
        """Returns the current state. Other ranks may average with the replica a moment later."""
        self._average_with(None)
        return {"steps": self.steps, "x": self._flat.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned. Collective."""
        self._count(state["steps"])
        self.workers.barrier()
        self._flat[:] = state["x"]
        self._all[self.workers.rank].apply(self._put, 0, len(self._flat), self._flat.ctypes.data, 0, 0)
        self.replica.write(0, self._flat)
        self.workers.barrier()
