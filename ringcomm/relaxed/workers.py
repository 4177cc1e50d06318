"""The ranks of a host that use weights in common: how far each of them is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcomm import _core, shared
from ringcomm.agreement import exchange
from ringcomm.arrays import CoreMemory
from ringcomm.errors import PeerLostError, UnsupportedError
from ringcomm.process_sets import ProcessSet

Flat = NDArray[Any]
FINISHED = 2**63 - 1  # a clock
_LOOK = 0.1  # seconds of a sleep, at most


class Workers:
    """The ranks that use shared weights: their clocks, in the first one's memory. Collective."""

    spread = False  # every rank reaches all memory
    threaded = True  # nobody needs this rank's worker

    def __init__(self, name: str, process_set: ProcessSet, on_loss: str = "end") -> None:
        if on_loss not in ("end", "continue"):
            raise ValueError(f'on_loss={on_loss!r}: "end" or "continue"')
        self.name, self.process_set, self._on_loss = name, process_set, on_loss
        self.rank, self.size = process_set.require_rank(), process_set.size()
        self.node_rank = self.rank
        self.node = process_set.node
        if self.size > 1 and (self.node is None or self.node.size != self.size):
            raise UnsupportedError(
                f"{name}: the ranks {list(process_set.ranks)} share no memory (several hosts, or shared_memory=off), "
                "which shared weights need. Give process_set= the ranks of one host, or take LocalSGD or DiLoCo"
            )
        self.waited = 0.0  # seconds
        table = _core.Clocks.bytes(self.size)
        self._memory = self.allocate(2 * table + 8 * self.size) if self.rank == 0 else None
        (address,) = self.addresses([0], self._memory, "clocks")
        self.clocks = _core.Clocks(address, self.size, self.node)
        self._meetings, self._met = _core.Clocks(address + table, self.size, self.node), 0
        self._numbers = np.asarray(CoreMemory(address + 2 * table, 8 * self.size, self._memory)).view(np.int64)
        # Keeps the memory, at which others may look a moment longer than this rank, until ringcomm ends here.
        process_set.session().at_end.append(self.leave)
        self.meet()

    def allocate(self, nbytes: int) -> Flat:
        """Zeros, in this rank's arena."""
        memory = shared.flat(self.node, nbytes)
        memory[:] = 0
        return memory

    def addresses(self, owners: Sequence[int], mine: Flat | None, what: str) -> list[int]:
        """Where each owner's memory is in this process. Collective."""
        if self.node is None:
            return [] if mine is None else [mine.ctypes.data]
        offset = -1
        if mine is not None:
            found = self.node.offset_of(mine.ctypes.data, mine.nbytes)
            if found is None:
                raise MemoryError(f"{self.name}: {mine.nbytes} bytes of shared memory are not to be had for {what}")
            offset = found
        rows = exchange([offset], f"{self.name}.{what}", self.process_set)
        offsets = [row[0] for row in rows.values()]
        return [self.node.address(owner, offsets[owner]) for owner in owners]

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
        answer: Callable[[Callable[[], bool]], None] | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """This rank makes no more steps. Returns when none does, and all have come. ``answer(until)``: what this rank
        does for others meanwhile; ``settle``: what is left to do once a rank has finished, and once all have."""
        self.clocks.set(self.rank, None)
        settle()
        if answer is not None:
            answer(self.all_finished)
        waited = self.waited
        self.wait(self.all_finished)
        self.waited = waited  # for the end, not for a step
        settle()
        self.meet()

    def wait(
        self,
        there: Callable[[], bool],
        meanwhile: Callable[[], None] = lambda: None,
        clocks: _core.Clocks | None = None,
    ) -> None:
        """Until it is so. Whatever changes it wakes the clocks."""
        clocks = clocks or self.clocks
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
        """Until somebody wakes these clocks, or a moment."""
        clocks.sleep(seen, _LOOK)

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
