"""Messages between neighbours in a graph, round after round, of which some have finished earlier than others."""

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

_DATA, _GONE = 0, 1  # last byte of a message: whether it has data, or its sender has finished


class Neighbourhood(ABC):
    """Rounds of data, to those who hear this rank and from those whom it hears. Collective."""

    def __init__(self, topology: Topology, process_set: ProcessSet) -> None:
        self.rank, self.size = process_set.require_rank(), process_set.size()
        rounds = range(topology.period(self.size))
        self._hears = [topology.hears(self.rank, self.size, number) for number in rounds]
        self._tells = [topology.tells(self.rank, self.size, number) for number in rounds]
        self.round = self.bytes = 0

    @abstractmethod
    def room(self) -> np.ndarray[Any, Any]:
        """Where this round's data (bytes) is put for `begin`. It stays as it is until the next round asks for room."""

    @abstractmethod
    def begin(self, nbytes: int) -> None:
        """Sends the first ``nbytes`` of the room to the ranks that receive from this rank and have not finished."""

    @abstractmethod
    def land(self) -> dict[int, np.ndarray[Any, Any]]:
        """Waits for the data of the round begun last. Returns it by rank, without the ranks that have finished. It is
        valid until this rank's next round begins."""

    @abstractmethod
    def leave(self) -> Iterator[None]:
        """This rank has finished; the iterator is asked again and again, and does not wait."""


class Neighbours(Neighbourhood):
    """Messages of one round after another, to those who hear this rank and from those whom it hears. Who has finished
    says so to both: to those who hear it in place of data, to those whom it hears by a note."""

    def __init__(self, name: str, topology: Topology, process_set: ProcessSet, nbytes: int) -> None:
        """``nbytes``: of a message's data, at most."""
        super().__init__(topology, process_set)
        self._comm: Communicator = process_set.session().comm  # type: ignore[attr-defined]
        self._ranks = process_set.ranks
        self._tag, self._note_tag = (FIRST_TAG | zlib.crc32(f"{name}{i}".encode()) & (FIRST_TAG - 1) for i in range(2))
        self._gone: set[int] = set()  # of those heard
        self._noted: set[int] = set()  # of those told
        self._buffers = {rank: np.empty(nbytes + 1, np.uint8) for one in self._hears for rank in one}
        self._message = np.empty(nbytes + 1, np.uint8)  # no send of a round outlives it, see land()
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
        """None: the rank has finished."""
        message = self._buffers[rank][: self._receives.pop(rank).wait().nbytes]
        if message[-1] == _GONE:
            self._gone.add(rank)
            return None
        return message[:-1]

    def leave(self) -> Iterator[None]:
        """Says so to all, and hears them out."""
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
