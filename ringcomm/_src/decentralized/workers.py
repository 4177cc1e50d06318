"""Ranks that use shared weights: their memory, their progress, and waiting for each other.

`Workers` serves ranks of one host; `DistributedWorkers` those of several hosts. Parameter
stores, and training methods that use shared memory, are built on these classes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcomm._src.arrays import shared
from ringcomm._src.arrays.numpy_kind import CoreMemory
from ringcomm._src.base.errors import PeerLostError, UnsupportedError
from ringcomm._src.core import _core
from ringcomm._src.named.agreement import exchange
from ringcomm._src.named.process_sets import ProcessSet

Flat = NDArray[Any]
FINISHED = 2**63 - 1  # clock of a rank that has finished
_LONGEST_SLEEP = 0.1  # longest sleep, in seconds
_LONGEST_UNTHREADED_SLEEP = 0.0005  # longest sleep of a rank without a worker thread, in seconds


class AnyWorkers(ABC):
    """Base class for the ranks that use shared weights, on one host or several.

    Parameters
    ----------
    node : _core.Node | None
        The arenas that this rank can access.
    node_ranks : Sequence[int]
        The owners of these arenas, as indices in the process set.
    """

    distributed = False  # False: every rank can access all shared weights directly
    threaded = True  # False: the worker has no thread, so this rank runs it while it waits

    def __init__(self, name: str, process_set: ProcessSet, node: _core.Node | None, node_ranks: Sequence[int]) -> None:
        self.name, self.process_set, self.node = name, process_set, node
        self.rank, self.size = process_set.require_rank(), process_set.size()
        self.node_ranks, self.node_rank = node_ranks, node_ranks.index(self.rank)
        self.session = process_set.session()
        self.waited = 0.0  # seconds spent waiting

    def allocate(self, nbytes: int) -> Flat:
        """Allocates zeros, in this rank's arena if it shares memory."""
        memory = shared.empty_bytes(self.node, nbytes)
        memory[:] = 0
        return memory

    def addresses(self, owners: Sequence[int], memory: Flat | None, what: str) -> list[int]:
        """Returns the addresses of the owners' memory here; 0: not accessible. Collective."""
        offset = -1
        if memory is not None and self.node is not None:
            found = self.node.offset_of(memory.ctypes.data, memory.nbytes)
            if found is None:
                raise MemoryError(f"{self.name}: cannot allocate {memory.nbytes} bytes of shared memory for {what}")
            offset = found
        rows = exchange([offset], f"{self.name}.{what}", self.process_set)
        offsets = [row[0] for row in rows.values()]
        return [self._address(owner, offsets[owner], memory) for owner in owners]

    def _address(self, owner: int, offset: int, memory: Flat | None) -> int:
        if owner == self.rank:
            assert memory is not None
            return memory.ctypes.data
        if owner not in self.node_ranks or self.node is None:
            return 0
        return self.node.address(self.node_ranks.index(owner), offset)

    def wait(
        self, is_reached: Callable[[], bool], clocks: _core.Clocks, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Blocks until ``is_reached()`` is true. Calls ``meanwhile`` before each sleep.

        Code that makes the condition true must then wake the ranks that sleep on ``clocks``.
        """
        since = time.monotonic()
        while True:
            ticks = clocks.ticks()
            if is_reached():
                break
            meanwhile()
            self.sleep(clocks, ticks)
            self.check()
        self.waited += time.monotonic() - since

    def sleep(self, clocks: _core.Clocks, ticks: int) -> None:
        """Sleeps until another rank wakes the sleepers on ``clocks``, or until a time limit.

        If this rank's worker has no thread, runs the worker first.
        """
        if not self.threaded:
            self.session.worker.help()
        clocks.sleep(ticks, _LONGEST_SLEEP if self.threaded else _LONGEST_UNTHREADED_SLEEP)

    @abstractmethod
    def check(self) -> None:
        """Raises PeerLostError if a rank has died, unless the other ranks may continue."""


class Workers(AnyWorkers):
    """Ranks of one host that use shared weights; the first rank stores the clocks. Collective."""

    def __init__(self, name: str, process_set: ProcessSet, on_loss: str = "end") -> None:
        if on_loss not in ("end", "continue"):
            raise ValueError(f'on_loss={on_loss!r}: must be "end" or "continue"')
        super().__init__(name, process_set, process_set.node, range(process_set.size()))
        self._on_loss = on_loss
        if self.size > 1 and (self.node is None or self.node.size != self.size):
            raise UnsupportedError(
                f"{name} needs shared memory, and ranks {list(process_set.ranks)} share no memory (several hosts, or "
                "shared_memory=off). Set process_set= to the ranks of one host, or use LocalSGD or DiLoCo"
            )
        table = _core.Clocks.bytes(self.size)
        self._memory = self.allocate(2 * table + 8 * self.size) if self.rank == 0 else None
        (address,) = self.addresses([0], self._memory, "clocks")
        self.clocks = _core.Clocks(address, self.size, self.node)
        self._barrier_clocks, self._barriers = _core.Clocks(address + table, self.size, self.node), 0
        self._numbers = np.asarray(CoreMemory(address + 2 * table, 8 * self.size, self._memory)).view(np.int64)
        # Peers may still read the memory after this rank has finished. The callback refers to this
        # object, so the memory exists until ringcomm shuts down in this process.
        self.session.at_end.append(self.leave)
        self.barrier()

    def clocks_at(self, owner: int) -> _core.Clocks:
        """Returns the clocks for an owner's memory."""
        return self.clocks

    def advance(self, clock: int) -> None:
        """Advances this rank's clock."""
        self.clocks.set(self.rank, clock)

    def leave(self) -> None:
        """Sets this rank's clocks to infinity, so that no rank waits for it."""
        self.clocks.set(self.rank, None)
        self._barrier_clocks.set(self.rank, None)

    def finish(
        self,
        participate: Callable[[Callable[[], bool]], None] = lambda until: None,
        apply_gathered: Callable[[], None] = lambda: None,
    ) -> None:
        """Ends this rank's steps, and blocks until all ranks have called this method.

        ``participate(until)``: serves other ranks until ``until()`` is true. ``apply_gathered``:
        called when this rank has finished, and again when all ranks have finished.
        """
        self.clocks.set(self.rank, None)
        apply_gathered()
        participate(self.all_finished)
        waited = self.waited
        self.wait(self.all_finished, self.clocks)
        self.waited = waited  # the wait at the end does not count
        apply_gathered()
        self.barrier()

    def check(self) -> None:
        """Raises PeerLostError if a rank has died, unless the other ranks may continue."""
        lost = self.lost()
        if lost and self._on_loss == "end":
            raise PeerLostError(f"{self.name}: ranks {lost} died: their processes have ended", tuple(lost))

    def lost(self) -> list[int]:
        """Returns the dead ranks, as ranks of the world."""
        dead = {*self.clocks.lost(), *self._barrier_clocks.lost()}
        return [self.process_set.ranks[index] for index in sorted(dead)]

    def all_finished(self) -> bool:
        return self.clocks.live() == 0

    def count(self, steps: int) -> None:
        """Publishes this rank's number of steps."""
        self._numbers[self.rank] = steps

    def counted(self, rank: int) -> int:
        """Returns the number that a rank of the set has published."""
        return int(self._numbers[rank])

    @property
    def updates(self) -> int:
        """Number of steps of all ranks, including ranks that died."""
        return int(self._numbers.sum())

    def detach(self) -> None:
        """Ends the use of other ranks' memory. Returns when no rank needs this rank's memory."""
        self.barrier()

    def barrier(self) -> None:
        """Blocks until all live ranks have called it. Dead ranks do not delay it."""
        self._barriers += 1
        self._barrier_clocks.set(self.rank, self._barriers)
        while not self._barrier_clocks.wait(-1, self._barriers, _LONGEST_SLEEP):
            self.check()
