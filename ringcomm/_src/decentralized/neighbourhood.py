"""Messages between neighbours in a graph, in rounds, when ranks may finish at different times.

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

_DATA, _FINISHED = 0, 1  # last byte of a message: it has data, or its sender has finished


class Neighbourhood(ABC):
    """Base class of exchanges of data, in rounds, between a rank and its neighbours. Collective."""

    def __init__(self, topology: Topology, process_set: ProcessSet) -> None:
        self.rank, self.size = process_set.require_rank(), process_set.size()
        rounds = range(topology.period(self.size))
        self._sources = [topology.in_neighbors(self.rank, self.size, number) for number in rounds]
        self._destinations = [topology.out_neighbors(self.rank, self.size, number) for number in rounds]
        self.round = self.bytes = 0

    @abstractmethod
    def room(self) -> np.ndarray[Any, Any]:
        """Returns memory (bytes) for this round's data, which is unchanged until the next call."""

    @abstractmethod
    def begin(self, nbytes: int) -> None:
        """Sends the first ``nbytes`` of `room` to the destinations that have not finished."""

    @abstractmethod
    def complete(self) -> dict[int, np.ndarray[Any, Any]]:
        """Waits for the data of the round begun last. Returns it by rank.

        Ranks that have finished are left out. The data is valid until this rank's next round
        begins.
        """

    @abstractmethod
    def leave(self) -> Iterator[None]:
        """Notifies the neighbours that this rank has finished. No step of the iterator blocks."""


class Neighbours(Neighbourhood):
    """Rounds of point-to-point messages between this rank and its neighbours.

    A rank that has finished notifies its neighbours. Ranks that receive from it get a message
    without data; ranks that send to it get an empty message with another tag (a note).
    """

    def __init__(self, name: str, topology: Topology, process_set: ProcessSet, nbytes: int) -> None:
        """``nbytes``: upper limit of the data of a message."""
        super().__init__(topology, process_set)
        self._comm: Communicator = process_set.session().comm  # type: ignore[attr-defined]
        self._ranks = process_set.ranks
        self._tag, self._note_tag = (FIRST_TAG | zlib.crc32(f"{name}{i}".encode()) & (FIRST_TAG - 1) for i in range(2))
        self._finished_sources: set[int] = set()  # source ranks that have finished
        self._finished_destinations: set[int] = set()  # destination ranks that have finished
        self._buffers = {rank: np.empty(nbytes + 1, np.uint8) for sources in self._sources for rank in sources}
        self._message = np.empty(
            nbytes + 1, np.uint8
        )  # unchanged until complete() has waited for all sends of the round
        self._sends: list[_core.MessageRequest | DeviceMessageRequest] = []
        self._receives: dict[int, _core.MessageRequest | DeviceMessageRequest] = {}

    def _active_destinations(self) -> list[int]:
        """Returns the ranks that receive this round's data, except ranks known to have finished."""
        destinations = self._destinations[self.round % len(self._destinations)]
        for rank in set(destinations) - self._finished_destinations:
            if self._comm.iprobe(self._ranks[rank], self._note_tag) is not None:
                self._comm.recv(np.empty(0, np.uint8), self._ranks[rank], self._note_tag)
                self._finished_destinations.add(rank)
        return [rank for rank in destinations if rank not in self._finished_destinations]

    def room(self) -> np.ndarray[Any, Any]:
        return self._message[:-1]

    def begin(self, nbytes: int) -> None:
        message = self._message[: nbytes + 1]
        message[nbytes] = _DATA
        for rank in self._active_destinations():
            self._sends.append(self._comm.isend(message, self._ranks[rank], self._tag))
            self.bytes += message.nbytes
        for rank in self._sources[self.round % len(self._sources)]:
            if rank not in self._finished_sources:
                self._post_receive(rank)
        self.round += 1

    def _post_receive(self, rank: int) -> None:
        self._receives[rank] = self._comm.irecv(self._buffers[rank], self._ranks[rank], self._tag)

    def complete(self) -> dict[int, np.ndarray[Any, Any]]:
        received = {}
        for rank in list(self._receives):
            data = self._received(rank)
            if data is not None:
                received[rank] = data
        for request in self._sends:
            request.wait()
        self._sends.clear()
        return received

    def _received(self, rank: int) -> np.ndarray[Any, Any] | None:
        """Returns the received data; None if the rank has finished."""
        message = self._buffers[rank][: self._receives.pop(rank).wait().nbytes]
        if message[-1] == _FINISHED:
            self._finished_sources.add(rank)
            return None
        return message[:-1]

    def leave(self) -> Iterator[None]:
        """Notifies all neighbours, and receives their messages until they have finished too."""
        finished, empty = np.array([_FINISHED], np.uint8), np.empty(0, np.uint8)
        sources, destinations = set(self._buffers), {rank for ranks in self._destinations for rank in ranks}
        requests: list[_core.MessageRequest | DeviceMessageRequest] = [
            self._comm.isend(finished, self._ranks[rank], self._tag) for rank in sorted(destinations)
        ]
        requests += [self._comm.isend(empty, self._ranks[rank], self._note_tag) for rank in sorted(sources)]
        requests += [
            self._comm.irecv(empty, self._ranks[rank], self._note_tag)
            for rank in destinations - self._finished_destinations
        ]
        for rank in sources - self._finished_sources:
            self._post_receive(rank)
        while self._receives or not all(request.test() for request in requests):
            for rank in [rank for rank, request in self._receives.items() if request.test()]:
                if self._received(rank) is not None:
                    self._post_receive(rank)
            yield
        for request in requests:
            request.wait()
