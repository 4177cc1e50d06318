"""The exchange of messages between neighbours in a graph, in rounds, when ranks may finish at different times.

`Neighbourhood` is the interface that `Mixing` uses; `Neighbours` implements it with point-to-point
messages.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from ringcomm._src.arrays.device.messages import DeviceMessageRequest
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.communicator.subgroup_bootstrap import FIRST_TAG
from ringcomm._src.core import _core
from ringcomm._src.decentralized.topology import Topology
from ringcomm._src.named.process_sets import ProcessSet

_DATA, _GONE = 0, 1  # last byte of a message: it has data, or its sender has finished


class Neighbourhood(ABC):
    """Rounds of data between this rank and its neighbours in both directions. Collective."""

    def __init__(self, topology: Topology, process_set: ProcessSet) -> None:
        self.rank, self.size = process_set.require_rank(), process_set.size()
        rounds = range(topology.period(self.size))
        self._hears = [topology.hears(self.rank, self.size, number) for number in rounds]
        self._tells = [topology.tells(self.rank, self.size, number) for number in rounds]
        self.round = self.bytes = 0

    @abstractmethod
    def room(self) -> np.ndarray[Any, Any]:
        """Returns the memory for this round's data (bytes). It stays unchanged until the next round requests memory."""

    @abstractmethod
    def begin(self, nbytes: int) -> None:
        """Sends the first ``nbytes`` of the room to the ranks that receive from this rank and have not finished."""

    @abstractmethod
    def land(self) -> dict[int, np.ndarray[Any, Any]]:
        """Waits for the data of the round begun last. Returns it by rank, without the ranks that have finished.

        The data is valid until this rank's next round begins.
        """

    @abstractmethod
    def leave(self) -> Iterator[None]:
        """Notifies the neighbours that this rank has finished. Each step of the iterator returns without blocking."""


class Neighbours(Neighbourhood):
    """Rounds of point-to-point messages between this rank and its neighbours.

    A rank that has finished notifies both directions. Ranks that receive from it get a message
    without data, and ranks that send to it get a note.
    """

    def __init__(self, name: str, topology: Topology, process_set: ProcessSet, nbytes: int) -> None:
        """``nbytes``: upper limit of the data of a message."""
        super().__init__(topology, process_set)
        self._comm: Communicator = process_set.session().comm  # type: ignore[attr-defined]
        self._ranks = process_set.ranks
        self._tag, self._note_tag = (FIRST_TAG | zlib.crc32(f"{name}{i}".encode()) & (FIRST_TAG - 1) for i in range(2))
        self._gone: set[int] = set()  # source ranks that have finished
        self._noted: set[int] = set()  # destination ranks that have finished
        self._buffers = {rank: np.empty(nbytes + 1, np.uint8) for one in self._hears for rank in one}
        self._message = np.empty(nbytes + 1, np.uint8)  # all sends of a round complete in land()
        self._sends: list[_core.MessageRequest | DeviceMessageRequest] = []
        self._receives: dict[int, _core.MessageRequest | DeviceMessageRequest] = {}

    def _told(self) -> list[int]:
        """Returns the ranks that receive this round's data, without those known to have finished."""
        told = self._tells[self.round % len(self._tells)]
        for rank in set(told) - self._noted:
            if self._comm.iprobe(self._ranks[rank], self._note_tag) is not None:
                self._comm.recv(np.empty(0, np.uint8), self._ranks[rank], self._note_tag)
                self._noted.add(rank)
        return [rank for rank in told if rank not in self._noted]

    def room(self) -> np.ndarray[Any, Any]:
        return self._message[:-1]

    def begin(self, nbytes: int) -> None:
        message = self._message[: nbytes + 1]
        message[nbytes] = _DATA
        for rank in self._told():
            self._sends.append(self._comm.isend(message, self._ranks[rank], self._tag))
            self.bytes += message.nbytes
        for rank in self._hears[self.round % len(self._hears)]:
            if rank not in self._gone:
                self._ask(rank)
        self.round += 1

    def _ask(self, rank: int) -> None:
        self._receives[rank] = self._comm.irecv(self._buffers[rank], self._ranks[rank], self._tag)

    def land(self) -> dict[int, np.ndarray[Any, Any]]:
        came = {}
        for rank in list(self._receives):
            data = self._received(rank)
            if data is not None:
                came[rank] = data
        for request in self._sends:
            request.wait()
        self._sends.clear()
        return came

    def _received(self, rank: int) -> np.ndarray[Any, Any] | None:
        """Returns the received data; None if the rank has finished."""
        message = self._buffers[rank][: self._receives.pop(rank).wait().nbytes]
        if message[-1] == _GONE:
            self._gone.add(rank)
            return None
        return message[:-1]

    def leave(self) -> Iterator[None]:
        """Notifies all neighbours, and receives their messages until they have finished too."""
        gone, nothing = np.array([_GONE], np.uint8), np.empty(0, np.uint8)
        heard, told = set(self._buffers), {rank for one in self._tells for rank in one}
        requests: list[_core.MessageRequest | DeviceMessageRequest] = [
            self._comm.isend(gone, self._ranks[rank], self._tag) for rank in sorted(told)
        ]
        requests += [self._comm.isend(nothing, self._ranks[rank], self._note_tag) for rank in sorted(heard)]
        requests += [self._comm.irecv(nothing, self._ranks[rank], self._note_tag) for rank in told - self._noted]
        for rank in heard - self._gone:
            self._ask(rank)
        while self._receives or not all(request.test() for request in requests):
            for rank in [rank for rank, request in self._receives.items() if request.test()]:
                if self._received(rank) is not None:
                    self._ask(rank)
            yield
        for request in requests:
            request.wait()
