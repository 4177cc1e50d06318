"""The gossip neighbourhood of ranks on one host, which read each other's data in place.

`neighbours_of` in gossip.py selects it when all ranks share memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ringcomm._src.arrays.numpy_kind import CoreMemory
from ringcomm._src.decentralized.neighbourhood import Neighbourhood
from ringcomm._src.decentralized.topology import Topology
from ringcomm._src.decentralized.workers import Workers
from ringcomm._src.named.process_sets import ProcessSet

_TAIL = 8  # bytes after a round's data: an int64 with the number of bytes of data
_TURNS = 2  # rounds for which data remains valid


class HostNeighbours(Neighbourhood):
    """The neighbourhood of ranks that share memory.

    A rank has two clocks: the number of rounds it has begun, and the number of rounds it has read.
    The clocks of a rank that has finished are infinite.
    """

    def __init__(self, name: str, topology: Topology, process_set: ProcessSet, nbytes: int) -> None:
        super().__init__(topology, process_set)
        self._begun, self._read = Workers(name, process_set), Workers(f"{name}.read", process_set)
        self._room = -(-(nbytes + _TAIL) // 64) * 64
        self._memory = self._begun.allocate(_TURNS * self._room)
        addresses = self._begun.addresses(list(range(self.size)), self._memory, "data")
        self._data = [
            np.asarray(CoreMemory(address, _TURNS * self._room, self._memory)).reshape(_TURNS, self._room)
            for address in addresses
        ]
        self._begun.barrier()

    def room(self) -> np.ndarray[Any, Any]:
        """Waits until all neighbours have read an older round's data. Returns its memory."""
        self._read.clocks.set(self.rank, self.round)
        for rank in self._destinations[(self.round - _TURNS) % len(self._destinations)] if self.round >= _TURNS else ():
            self._read.wait(
                lambda rank=rank: self._reached(self._read, rank, self.round - _TURNS + 1),  # type: ignore[misc]
                self._read.clocks,
            )
        return self._data[self.rank][self.round % _TURNS][:-_TAIL]

    def begin(self, nbytes: int) -> None:
        turn = self._data[self.rank][self.round % _TURNS]
        turn[-_TAIL:].view(np.int64)[:] = nbytes
        live = sum(
            self._begun.clocks.of(rank) is not None for rank in self._destinations[self.round % len(self._destinations)]
        )
        self.round += 1
        self._begun.count(self.round)
        self._begun.clocks.set(self.rank, self.round)
        self.bytes += nbytes * live

    @staticmethod
    def _reached(workers: Workers, rank: int, clock: int) -> bool:
        current = workers.clocks.of(rank)
        return current is None or current >= clock

    def complete(self) -> dict[int, np.ndarray[Any, Any]]:
        received = {}
        for rank in self._sources[(self.round - 1) % len(self._sources)]:
            self._begun.wait(lambda rank=rank: self._reached(self._begun, rank, self.round), self._begun.clocks)  # type: ignore[misc]
            if self._begun.counted(rank) >= self.round:
                turn = self._data[rank][(self.round - 1) % _TURNS]
                received[rank] = turn[: turn[-_TAIL:].view(np.int64)[0]]
        return received

    def leave(self) -> Iterator[None]:
        """Sets both clocks to infinity. The memory remains valid until all ranks have finished."""
        self._begun.leave()
        self._read.leave()
        return iter(())
