"""Gossip: ranks average with their neighbours in a graph, and communicate with no other rank.

`ringcomm.torch.Gossip` and `GossipAverager` create a `Gossip` method, which extends `Periodic` by
gossip rounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.decentralized.every import NEVER
from ringcomm._src.decentralized.host_neighbourhood import HostNeighbours
from ringcomm._src.decentralized.mixing import Compressed, Mix, Mixing
from ringcomm._src.decentralized.neighbourhood import Neighbourhood, Neighbours
from ringcomm._src.decentralized.periodic import Periodic
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.decentralized.rules import Mean
from ringcomm._src.decentralized.topology import Topology, topology
from ringcomm._src.named.process_sets import ProcessSet

MODES = ("sync", "async")
ORDERS = ("adapt_then_combine", "combine_while_adapt")


class How(NamedTuple):
    """The arguments of a gossip method, as in `ringcomm.torch.Gossip`."""

    graph: Topology
    mode: str
    every: int
    resync: int
    order: str
    compression: Any
    gamma: float | None

    def settings(self) -> dict[str, Any]:
        """Returns the settings that must be equal on all ranks."""
        return self._asdict() | {"graph": self.graph.name}


def checked(
    graph: str | Topology,
    mode: str,
    every: int,
    resync: int,
    order: str,
    compression: Any,
    gamma: float | None,
) -> How:
    """Returns the arguments as a `How`. Raises ValueError for invalid arguments or combinations."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: {' or '.join(map(repr, MODES))}")
    if order not in ORDERS:
        raise ValueError(f"order={order!r}: {' or '.join(map(repr, ORDERS))}")
    if every < 1 or resync < 0:
        raise ValueError(f"every={every}, resync={resync}: a positive number of steps, and one of 0 or more")
    if compression is not None and (mode != "sync" or not isinstance(compression, WireFormat)):
        raise ValueError(f'compression={compression!r}: a wire format such as Compression.int8, with mode="sync"')
    if compression is not None and order != ORDERS[0]:
        raise ValueError("compression goes with order='adapt_then_combine' only")
    if gamma is not None and not 0 < gamma <= 1:
        raise ValueError(f"gamma={gamma}: in (0, 1]")
    if mode == "async" and (resync or order != ORDERS[0]):
        raise ValueError(f"mode={mode!r} has no rounds: resync and order do not go with it")
    return How(topology(graph), mode, every, resync, order, compression, gamma)


def neighbours_of(name: str, graph: Topology, process_set: ProcessSet, nbytes: int) -> Neighbourhood:
    """Returns the neighbourhood of this rank, in shared memory if all ranks share it, else with messages. Collective.

    ``nbytes``: upper limit of a rank's data, in bytes.
    """
    node = process_set.node
    kind = HostNeighbours if node is not None and node.size == process_set.size() else Neighbours
    return kind(name, graph, process_set, nbytes)


def rows_of(graph: Topology, process_set: ProcessSet) -> list[Flat]:
    """Returns this rank's weights in each round of a period.

    Raises ValueError for a graph that does not preserve the mean.
    """
    size, rank = process_set.size(), process_set.require_rank()
    return [graph.matrix(size, number)[rank] for number in range(graph.period(size))]


class Gossip(Periodic):
    """The gossip method of a replica. Collective.

    The replica gossips after its steps. It averages with all ranks when a resync is due, when
    ``global_weights`` is entered, and at the end.

    Args:
        replica: the weights, in one fragment.
        how: the arguments. With ``order`` combine_while_adapt, messages are transferred during the
            next step: x <- x + mixed - sent.

    Raises:
        ValueError: the graph does not preserve the mean, or compression is requested for float64
            weights.
    """

    def __init__(self, name: str, replica: Replica[Any], how: How, process_set: ProcessSet) -> None:
        count, compression = replica.sizes[0], how.compression
        rows = rows_of(how.graph, process_set)
        if compression is not None and replica.dtype.itemsize != 4:
            raise ValueError("compression is of float32 weights, and there are float64 ones")
        if compression is not None and len(rows) != 1:
            raise ValueError(f"compression needs neighbours that stay: topology {how.graph.name!r} changes them")
        super().__init__(name, replica, Mean(), how.resync or NEVER, process_set)
        nbytes = count * replica.dtype.itemsize if compression is None else Compressed.capacity(compression, count)
        self._neighbours = neighbours_of(f"{name}.gossip", how.graph, process_set, nbytes)
        self._period, self._overlap = how.every, how.order == ORDERS[1]
        self._mix = self._mixing(how, rows)
        self._flying = False
        self._gossiped, self._waited = 0, 0.0

    def _mixing(self, how: How, rows: list[Flat]) -> Mixing:
        wire = how.compression
        if wire is None:
            return Mix(rows, self._neighbours, self.replica.sizes[0], self.replica.dtype)
        gamma = how.gamma if how.gamma is not None else (1.0 if wire.name == "int8" else 0.4)
        return Compressed(rows[0], self._neighbours, self.replica.now(0), wire, gamma)

    def stepped(self) -> None:
        steps = self.steps + 1
        if steps % self._period == 0:
            self._settle()
            self._mix.begin(partial(self.replica.read, 0))
            self._flying = True
            if not self._overlap:
                self._settle()
        if self.every.due(steps):
            self._settle()
        super().stepped()

    def _settle(self) -> None:
        if not self._flying:
            return
        since = time.monotonic()
        mixed = self._mix.land()
        self._waited += time.monotonic() - since
        self._flying = False
        if self._overlap:
            mixed += self.replica.now(0) - self._mix.sent
        self._gossiped += 1
        self.distance = self.replica.distance(0, mixed)
        self.replica.write(0, mixed)

    def exchange_now(self) -> None:
        self._settle()
        super().exchange_now()

    def global_weights(self) -> AbstractContextManager[None]:
        self._settle()
        return super().global_weights()

    def _finish(self) -> None:
        self._settle()
        super()._finish()

    def _beside(self) -> Iterator[None]:
        return self._neighbours.leave()

    @property
    def exchanges(self) -> int:
        return self._gossiped + self.rounds

    def stats(self) -> dict[str, Any]:
        stats = super().stats()
        waited = stats["waited"] + self._share(self._waited)
        return stats | {"waited": waited, "bytes": stats["bytes"] + self._neighbours.bytes}

    def state(self) -> dict[str, Any]:
        return {"means": super().state(), "round": self._neighbours.round, "mix": self._mix.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state["means"])
        self._neighbours.round = state["round"]
        self._mix.load(state["mix"])
