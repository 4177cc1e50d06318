"""Ranks that use shared weights: their memory, their progress, and waiting for each other.

`Workers` serves ranks of one host; `SpreadWorkers` (spread.py) those of several hosts. Methods in
shared memory and parameter stores build on them.
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
_LOOK = 0.1  # longest sleep, in seconds
_TURN = 0.0005  # longest sleep of a rank without a worker thread, in seconds


class AnyWorkers(ABC):
    """Base class of the ranks that use shared weights, on any hosts.

    Args:
        node: the arenas that this rank can access, which belong to the ranks ``near``.
        near: indices of these ranks in the set.
    """

    spread = False  # False: every rank reaches all memory
    threaded = True  # no rank needs this rank's worker

    def __init__(self, name: str, process_set: ProcessSet, node: _core.Node | None, near: Sequence[int]) -> None:
        self.name, self.process_set, self.node = name, process_set, node
        self.rank, self.size = process_set.require_rank(), process_set.size()
        self.near, self.node_rank = near, near.index(self.rank)
        self.session = process_set.session()
        self.waited = 0.0  # seconds spent waiting

    def allocate(self, nbytes: int) -> Flat:
        """Allocates zeros, in this rank's arena if it shares memory."""
        memory = shared.flat(self.node, nbytes)
        memory[:] = 0
        return memory

    def addresses(self, owners: Sequence[int], mine: Flat | None, what: str) -> list[int]:
        """Returns the address of each owner's memory in this process; 0: not accessible. Collective."""
        offset = -1
        if mine is not None and self.node is not None:
            found = self.node.offset_of(mine.ctypes.data, mine.nbytes)
            if found is None:
                raise MemoryError(f"{self.name}: {mine.nbytes} bytes of shared memory are not to be had for {what}")
            offset = found
        rows = exchange([offset], f"{self.name}.{what}", self.process_set)
        offsets = [row[0] for row in rows.values()]
        return [self._address(owner, offsets[owner], mine) for owner in owners]

    def _address(self, owner: int, offset: int, mine: Flat | None) -> int:
        if owner == self.rank:
            assert mine is not None
            return mine.ctypes.data
        if owner not in self.near or self.node is None:
            return 0
        return self.node.address(self.near.index(owner), offset)

    def wait(
        self, there: Callable[[], bool], clocks: _core.Clocks, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Blocks until ``there()`` is true. Every change that can make it true must wake the clocks."""
        since = time.monotonic()
        while True:
            seen = clocks.ticks()
            if there():
                break
            meanwhile()
            self.sleep(clocks, seen)
            self.check()
        self.waited += time.monotonic() - since

    def sleep(self, clocks: _core.Clocks, seen: int) -> None:
        """Sleeps until a rank wakes these clocks, or a time limit. Runs turns of a worker that has no thread."""
        if not self.threaded:
            self.session.worker.help()
        clocks.sleep(seen, _LOOK if self.threaded else _TURN)

    @abstractmethod
    def check(self) -> None:
        """Raises PeerLostError if a worker has died, unless the other ranks continue."""


class Workers(AnyWorkers):
    """The ranks of one host that use shared weights, with clocks in the first rank's memory. Collective."""

    def __init__(self, name: str, process_set: ProcessSet, on_loss: str = "end") -> None:
        if on_loss not in ("end", "continue"):
            raise ValueError(f'on_loss={on_loss!r}: "end" or "continue"')
        super().__init__(name, process_set, process_set.node, range(process_set.size()))
        self._on_loss = on_loss
        if self.size > 1 and (self.node is None or self.node.size != self.size):
            raise UnsupportedError(
                f"{name}: the ranks {list(process_set.ranks)} share no memory (several hosts, or shared_memory=off), "
                "which shared weights need. Give process_set= the ranks of one host, or take LocalSGD or DiLoCo"
            )
        table = _core.Clocks.bytes(self.size)
        self._memory = self.allocate(2 * table + 8 * self.size) if self.rank == 0 else None
        (address,) = self.addresses([0], self._memory, "clocks")
        self.clocks = _core.Clocks(address, self.size, self.node)
        self._meetings, self._met = _core.Clocks(address + table, self.size, self.node), 0
        self._numbers = np.asarray(CoreMemory(address + 2 * table, 8 * self.size, self._memory)).view(np.int64)
        # Peers may read the memory a little after this rank has finished. This reference keeps it
        # until ringcomm ends here.
        self.session.at_end.append(self.leave)
        self.meet()

    def clocks_at(self, owner: int) -> _core.Clocks:
        """Returns the clocks for an owner's memory."""
        return self.clocks

    def advance(self, clock: int) -> None:
        """Advances this rank's clock."""
        self.clocks.set(self.rank, clock)

    def leave(self) -> None:
        """Sets this rank's clocks to infinity, so that no rank waits for it."""
        self.clocks.set(self.rank, None)
        self._meetings.set(self.rank, None)

    def finish(
        self,
        answer: Callable[[Callable[[], bool]], None] = lambda until: None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """Ends this rank's steps. Returns when all ranks have finished and have called it.

        ``answer(until)``: serves other ranks meanwhile; ``settle``: called when this rank has
        finished, and again when all ranks have.
        """
        self.clocks.set(self.rank, None)
        settle()
        answer(self.all_finished)
        waited = self.waited
        self.wait(self.all_finished, self.clocks)
        self.waited = waited  # the wait at the end does not count
        settle()
        self.meet()

    def check(self) -> None:
        """Raises PeerLostError if a worker has died, unless the other ranks continue."""
        lost = self.lost()
        if lost and self._on_loss == "end":
            raise PeerLostError(f"{self.name}: rank {lost} died: its process has ended", tuple(lost))

    def lost(self) -> list[int]:
        """Returns the dead ranks, as ranks of the world."""
        gone = {*self.clocks.lost(), *self._meetings.lost()}
        return [self.process_set.ranks[one] for one in sorted(gone)]

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

    def part(self) -> None:
        """Ends this rank's use of the other ranks' memory. Returns when no rank needs this rank's memory."""
        self.meet()

    def meet(self) -> None:
        """Blocks until all live ranks have called it. It uses shared memory only, so dead ranks delay no rank."""
        self._met += 1
        self._meetings.set(self.rank, self._met)
        while not self._meetings.wait(-1, self._met, _LOOK):
            self.check()
