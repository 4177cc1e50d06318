"""Gossip: ranks average with their neighbours in a graph, by messages, and with nobody else."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ringcomm import _core
from ringcomm.communicator import Communicator
from ringcomm.members import FIRST_TAG
from ringcomm.process_sets import ProcessSet
from ringcomm.relaxed.periodic import Periodic
from ringcomm.relaxed.replicas import Flat, Replica
from ringcomm.topology import Topology
from ringcomm.wire_formats import WireFormat

_STATE, _WEIGHT = 0, 1  # numbers behind the data: who has finished, and the sender's push-sum weight
_TAIL = 2
_ALL_HERE, _SOME_GONE, _GONE = 0.0, 1.0, 2.0  # as far as the sender knows; and the sender itself


class Neighbours:
    """Messages of one round after another, to those who hear this rank and from those whom it hears. Who has finished
    says so to both: to those who hear it in place of data, to those whom it hears by a note."""

    def __init__(self, name: str, topology: Topology, process_set: ProcessSet, nbytes: int) -> None:
        """``nbytes``: of a message without its tail, at most."""
        self._comm: Communicator = process_set.session().comm  # type: ignore[attr-defined]
        self._ranks, self.rank, self.size = process_set.ranks, process_set.require_rank(), process_set.size()
        self._tag, self._note_tag = (FIRST_TAG | zlib.crc32(f"{name}{i}".encode()) & (FIRST_TAG - 1) for i in range(2))
        period = topology.period(self.size)
        self._hears = [topology.hears(self.rank, self.size, t) for t in range(period)]
        self._tells = [topology.tells(self.rank, self.size, t) for t in range(period)]
        self._gone: set[int] = set()  # of those heard
        self._noted: set[int] = set()  # of those told
        self.some_gone = False  # anywhere, as far as it has come round
        self.round = 0
        self._buffers = {rank: np.empty(nbytes + _TAIL * 8, np.uint8) for one in self._hears for rank in one}
        self._sends: list[_core.MessageRequest] = []
        self._receives: dict[int, _core.MessageRequest] = {}
        self.bytes = 0

    def told(self) -> list[int]:
        """Who will hear the next round's data, as far as it is known who has finished."""
        told = self._tells[self.round % len(self._tells)]
        for rank in set(told) - self._noted:
            if self._comm.iprobe(self._ranks[rank], self._note_tag) is not None:
                self._comm.recv(np.empty(0, np.uint8), self._ranks[rank], self._note_tag)
                self._noted.add(rank)
                self.some_gone = True
        return [rank for rank in told if rank not in self._noted]

    def begin(self, data: np.ndarray[Any, Any], told: list[int], weight: float = 1.0) -> None:
        """Sends this round's data (bytes) to these, and asks for the others'."""
        message = np.concatenate([data, np.array([_SOME_GONE if self.some_gone else _ALL_HERE, weight]).view(np.uint8)])
        for rank in told:
            self._sends.append(self._comm.isend(message, self._ranks[rank], self._tag))
            self.bytes += message.nbytes
        for rank in self._hears[self.round % len(self._hears)]:
            if rank not in self._gone:
                self._ask(rank)
        self.round += 1

    def _ask(self, rank: int) -> None:
        self._receives[rank] = self._comm.irecv(self._buffers[rank], self._ranks[rank], self._tag)

    def land(self) -> dict[int, tuple[np.ndarray[Any, Any], float]]:
        """By rank: what came in the round begun last, and the sender's weight. Of those who have finished, nothing."""
        came = {}
        for rank in list(self._receives):
            message = self._received(rank)
            if message is not None:
                came[rank] = message[: -_TAIL * 8], float(message[-_TAIL * 8 :].view(np.float64)[_WEIGHT])
        for request in self._sends:
            request.wait()
        self._sends.clear()
        return came

    def _received(self, rank: int) -> np.ndarray[Any, Any] | None:
        """None: the rank has finished."""
        message = self._buffers[rank][: self._receives.pop(rank).wait().nbytes]
        state = message[-_TAIL * 8 :].view(np.float64)[_STATE]
        self.some_gone |= bool(state != _ALL_HERE)
        if state == _GONE:
            self._gone.add(rank)
            return None
        return message

    def leave(self) -> Iterator[None]:
        """Says that this rank has finished, and hears all others out; the iterator is asked again and again, and does
        not wait."""
        gone, nothing = np.array([_GONE, 0.0]).view(np.uint8), np.empty(0, np.uint8)
        heard, told = set(self._buffers), {rank for one in self._tells for rank in one}
        requests = [self._comm.isend(gone, self._ranks[rank], self._tag) for rank in sorted(told)]
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


class Mix:
    """What a rank makes of its own weights and its neighbours'."""

    def __init__(self, topology: Topology, neighbours: Neighbours, dtype: Any) -> None:
        self._neighbours, self._dtype = neighbours, dtype
        size, rank = neighbours.size, neighbours.rank
        self._rows = [topology.matrix(size, t)[rank] for t in range(topology.period(size))]
        self._sent: Flat | None = None
        self._row = self._rows[0]

    def begin(self, x: Flat) -> None:
        self._row = self._rows[self._neighbours.round % len(self._rows)]
        self._sent = x.copy()
        self._neighbours.begin(self._sent.view(np.uint8), self._neighbours.told())

    def land(self) -> Flat:
        """sum W x_j. The weights of those who have finished are this rank's own."""
        assert self._sent is not None
        mixed, rest = np.zeros_like(self._sent), 1.0
        for rank, (data, _) in sorted(self._neighbours.land().items()):
            mixed += self._row[rank] * data.view(self._dtype)
            rest -= self._row[rank]
        mixed += rest * self._sent
        return mixed

    def sent(self) -> Flat:
        assert self._sent is not None
        return self._sent

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None: ...

    def reset(self) -> None: ...


class Compressed:
    """CHOCO: what travels is how the weights differ from what the neighbours know of them, encoded; x += gamma sum W
    (x^_j - x^_i). Of the neighbours' known weights only the weighted sum is kept.

    Source: Koloskova, Stich and Jaggi, arXiv:1902.00340; Koloskova et al., arXiv:1907.09356.
    """

    def __init__(self, topology: Topology, neighbours: Neighbours, count: int, wire: WireFormat, gamma: float) -> None:
        if topology.period(neighbours.size) != 1:
            raise ValueError(f"compression needs neighbours that stay: topology {topology.name!r} changes them")
        self._neighbours, self._gamma = neighbours, gamma
        self._row = topology.matrix(neighbours.size)[neighbours.rank]
        self._codec = _core.Codec(wire.code, _core.DTYPES.index("float32"), None)
        self._known = np.zeros(count, np.float32)  # x^ of this rank
        self._sum = np.zeros(count, np.float32)  # sum W x^_j
        self._wire = np.empty(self.capacity(wire, count), np.uint8)
        self._x = self._known

    def begin_with(self, x: Flat) -> None:
        """Weights that all ranks know, for they have the same."""
        self._known[:] = x
        self._sum[:] = x  # rows of W sum to 1

    @staticmethod
    def capacity(wire: WireFormat, count: int) -> int:
        return int(_core.Codec(wire.code, _core.DTYPES.index("float32"), None).capacity(count))

    def begin(self, x: Flat) -> None:
        self._x = x.copy()
        change = x - self._known
        nbytes = self._codec.encode(change.ctypes.data, len(change), self._wire.ctypes.data) if len(x) else 0
        self._known += change  # which is now what it decodes to
        self._sum += np.float32(self._row[self._neighbours.rank]) * change
        self._neighbours.begin(self._wire[:nbytes].copy(), self._neighbours.told())

    def land(self) -> Flat:
        change = np.empty_like(self._known)
        for rank, (data, _) in sorted(self._neighbours.land().items()):
            aligned = data.copy()
            self._codec.decode(aligned.ctypes.data, len(aligned), change.ctypes.data, len(change), False)
            self._sum += np.float32(self._row[rank]) * change
        return np.asarray(self._x + np.float32(self._gamma) * (self._sum - self._known))

    def sent(self) -> Flat:
        return self._x

    def state(self) -> dict[str, Any]:
        return {"known": self._known.copy(), "sum": self._sum.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._known[:], self._sum[:] = state["known"], state["sum"]

    def reset(self) -> None: ...


class PushSum:
    """Ranks send shares of what they have, and of a weight that begins with 1; what they train with is the quotient. It
    tends to the mean on any graph, also where edges go one way.

    Source: Kempe, Dobra and Gehrke, FOCS 2003; Assran et al. (SGP), arXiv:1811.10792.
    """

    def __init__(self, neighbours: Neighbours, dtype: Any) -> None:
        self._neighbours, self._dtype = neighbours, dtype
        self.weight = 1.0
        self._x: Flat | None = None  # the numerator,
        self._z: Flat | None = None  # and the quotient, as they were after the last round

    def begin(self, z: Flat) -> None:
        if self._x is None or self._z is None:
            x = z * np.asarray(self.weight, z.dtype)
        else:
            # Ranks that finish take some of the weights' sum with them: steps must not grow for that.
            by = min(self.weight, 1.0) if self._neighbours.some_gone else 1.0
            x = self._x + (z - self._z) * np.asarray(by, z.dtype)
        told = self._neighbours.told()
        share = 1 / (1 + len(told))  # everybody who hears gets as much
        self._x, self._sent = x * np.asarray(share, x.dtype), z
        self.weight *= share
        self._neighbours.begin(self._x.view(np.uint8), told, self.weight)

    def land(self) -> Flat:
        assert self._x is not None
        for _, (data, weight) in sorted(self._neighbours.land().items()):
            self._x = self._x + data.view(self._dtype)
            self.weight += weight
        self._z = np.asarray(self._x / self.weight, self._dtype)
        return self._z.copy()

    def sent(self) -> Flat:
        return self._sent

    def reset(self) -> None:
        """All ranks hold the same."""
        self.weight, self._x, self._z = 1.0, None, None

    def state(self) -> dict[str, Any]:
        return {"weight": self.weight, "x": self._x, "z": self._z}

    def load(self, state: Mapping[str, Any]) -> None:
        self.weight, self._x, self._z = state["weight"], state["x"], state["z"]


class GossipRounds:
    """Has a replica gossip after its steps, and now and then average with all ranks.

    Args:
        mix: Mix, Compressed or PushSum.
        every: steps between rounds.
        overlap: a round's messages travel during the next step (combine while adapt): x <- x + mixed - sent.
        means: of all ranks' replicas: when they are due, when somebody looks, and at the end.
    """

    has_own_model = False

    def __init__(
        self, replica: Replica[Any], mix: Any, neighbours: Neighbours, every: int, overlap: bool, means: Periodic
    ) -> None:
        self._replica, self._mix, self._neighbours, self._means = replica, mix, neighbours, means
        self._every, self._overlap = every, overlap
        self._flying = False
        self._gossiped = 0
        self.distance = self.waited = 0.0

    def stepped(self) -> None:
        steps = self._means.steps + 1
        if steps % self._every == 0:
            self._flush()
            self._mix.begin(self._replica.now(0))
            self._flying = True
            if not self._overlap:
                self._flush()
        if self._means.every.due(steps):
            self._flush()
        before = self._means.exchanges
        self._means.stepped()
        if self._means.exchanges > before:
            self._mix.reset()

    def _flush(self) -> None:
        if not self._flying:
            return
        since = time.monotonic()
        mixed = self._mix.land()
        self.waited += time.monotonic() - since
        self._flying = False
        if self._overlap:
            mixed += self._replica.now(0) - self._mix.sent()
        self._gossiped += 1
        self.distance = self._replica.distance(0, mixed)
        self._replica.write(0, mixed)

    def exchange_now(self) -> None:
        self._flush()
        self._means.exchange_now()
        self._mix.reset()

    def global_weights(self) -> AbstractContextManager[None]:
        self._flush()
        return self._means.global_weights()

    def finish(self) -> None:
        if self._means.finished:
            return
        self._flush()
        self._means.finish(self._neighbours.leave())

    @property
    def exchanges(self) -> int:
        return self._gossiped + self._means.exchanges

    @property
    def updates(self) -> int:
        return self._means.updates

    def stats(self) -> dict[str, Any]:
        stats = self._means.stats()
        waited = stats["waited"] + self.waited / max(time.monotonic() - self._means.since, 1e-9)
        changed = {"exchanges": self.exchanges, "waited": waited, "distance": self.distance}
        return stats | changed | {"bytes": stats["bytes"] + self._neighbours.bytes}

    def state(self) -> dict[str, Any]:
        return {"means": self._means.state(), "round": self._neighbours.round, "mix": self._mix.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._means.load(state["means"])
        self._neighbours.round = state["round"]
        self._mix.load(state["mix"])
