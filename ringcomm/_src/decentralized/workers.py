"""Ranks that use weights in common: how far each of them is, where they are of one host."""

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
FINISHED = 2**63 - 1  # a clock
_LOOK = 0.1  # seconds of a sleep, at most
_TURN = 0.0005  # the same, of a rank whose worker has no thread


class AnyWorkers(ABC):
    """Ranks that use shared weights, on whatever hosts: memory, and waiting.

    Args:
        node: the arenas that this rank reaches, which are those of the ranks ``near`` (of the set).
    """

    spread = False  # every rank reaches all memory
    threaded = True  # nobody needs this rank's worker

    def __init__(self, name: str, process_set: ProcessSet, node: _core.Node | None, near: Sequence[int]) -> None:
        self.name, self.process_set, self.node = name, process_set, node
        self.rank, self.size = process_set.require_rank(), process_set.size()
        self.near, self.node_rank = near, near.index(self.rank)
        self.session = process_set.session()
        self.waited = 0.0  # seconds

    def allocate(self, nbytes: int) -> Flat:
        """Zeros, in this rank's arena if others are to reach them."""
        memory = shared.flat(self.node, nbytes)
        memory[:] = 0
        return memory

    def addresses(self, owners: Sequence[int], mine: Flat | None, what: str) -> list[int]:
        """Where each owner's memory is in this process; 0: out of reach. Collective."""
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
        """Until it is so. Whatever changes it wakes the clocks."""
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
        """Until somebody wakes these clocks, or a moment; without a thread, the worker has turns meanwhile."""
        if not self.threaded:
            self.session.worker.help()
        clocks.sleep(seen, _LOOK if self.threaded else _TURN)

    @abstractmethod
    def check(self) -> None:
        """Raises PeerLostError if a worker has died, unless the others are to go on."""


class Workers(AnyWorkers):
    """The ranks that use shared weights: their clocks, in the first one's memory. Collective."""

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
        # Keeps the memory, at which others may look a moment longer than this rank, until ringcomm ends here.
        self.session.at_end.append(self.leave)
        self.meet()

    def clocks_at(self, owner: int) -> _core.Clocks:
        """Those that go with an owner's memory."""
        return self.clocks

    def advance(self, clock: int) -> None:
        """This rank has done so much."""
        self.clocks.set(self.rank, clock)

    def leave(self) -> None:
        """Nobody waits for this rank any more."""
        self.clocks.set(self.rank, None)
        self._meetings.set(self.rank, None)

    def finish(
        self,
        answer: Callable[[Callable[[], bool]], None] = lambda until: None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """This rank makes no more steps. Returns when none does, and all have come. ``answer(until)``: what this rank
        does for others meanwhile; ``settle``: what is left to do once a rank has finished, and once all have."""
        self.clocks.set(self.rank, None)
        settle()
        answer(self.all_finished)
        waited = self.waited
        self.wait(self.all_finished, self.clocks)
        self.waited = waited  # for the end, not for a step
        settle()
        self.meet()

    def check(self) -> None:
        """Raises PeerLostError if a worker has died, unless the others are to go on."""
        lost = self.lost()
        if lost and self._on_loss == "end":
            raise PeerLostError(f"{self.name}: rank {lost} died: its process has ended", tuple(lost))

    def lost(self) -> list[int]:
        """Ranks of the world."""
        gone = {*self.clocks.lost(), *self._meetings.lost()}
        return [self.process_set.ranks[one] for one in sorted(gone)]

    def all_finished(self) -> bool:
        return self.clocks.live() == 0

    def count(self, steps: int) -> None:
        """This rank has made so many."""
        self._numbers[self.rank] = steps

    def counted(self, rank: int) -> int:
        """What a rank of the set has counted up to."""
        return int(self._numbers[rank])

    @property
    def updates(self) -> int:
        """Steps of all ranks, of those that died too."""
        return int(self._numbers.sum())

    def part(self) -> None:
        """This rank needs no other's memory any more. Returns when none needs this one's."""
        self.meet()

    def meet(self) -> None:
        """Until all that live have come: by shared memory alone, so that the dead hold up nobody."""
        self._met += 1
        self._meetings.set(self.rank, self._met)
        while not self._meetings.wait(-1, self._met, _LOOK):
            self.check()
