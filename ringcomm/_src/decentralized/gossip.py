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


class GossipOptions(NamedTuple):
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


def checked_options(
    graph: str | Topology,
    mode: str,
    every: int,
    resync: int,
    order: str,
    compression: Any,
    gamma: float | None,
) -> GossipOptions:
    """Returns the arguments as `GossipOptions`. Raises ValueError if they are invalid."""
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: must be {' or '.join(map(repr, MODES))}")
    if order not in ORDERS:
        raise ValueError(f"order={order!r}: must be {' or '.join(map(repr, ORDERS))}")
    if every < 1 or resync < 0:
        raise ValueError(f"every={every}, resync={resync}: every must be positive, resync 0 or more")
    if compression is not None and (mode != "sync" or not isinstance(compression, WireFormat)):
        raise ValueError(
            f'compression={compression!r}: needs mode="sync" and a wire format, for example Compression.int8'
        )
    if compression is not None and order != ORDERS[0]:
        raise ValueError("compression requires order='adapt_then_combine'")
    if gamma is not None and not 0 < gamma <= 1:
        raise ValueError(f"gamma={gamma}: must be in (0, 1]")
    if mode == "async" and (resync or order != ORDERS[0]):
        raise ValueError(f"mode={mode!r} has no rounds, so resync and order must keep their defaults")
    return GossipOptions(topology(graph), mode, every, resync, order, compression, gamma)


def neighbours_of(name: str, graph: Topology, process_set: ProcessSet, nbytes: int) -> Neighbourhood:
    """Returns the neighbourhood of this rank. Collective.

    The neighbourhood uses shared memory if all ranks share memory, else messages. ``nbytes``:
    upper limit of a rank's data, in bytes.
    """
    node = process_set.node
    kind = HostNeighbours if node is not None and node.size == process_set.size() else Neighbours
    return kind(name, graph, process_set, nbytes)


def rows_of(graph: Topology, process_set: ProcessSet) -> list[Flat]:
    """Returns this rank's row of the mixing matrix, for each round of a period.

    Raises ValueError for a graph that does not preserve the mean.
    """
    size, rank = process_set.size(), process_set.require_rank()
    return [graph.matrix(size, number)[rank] for number in range(graph.period(size))]


class Gossip(Periodic):
    """The gossip method of a replica. Collective.

    After a step, the replica is averaged with its neighbours. All ranks average when a resync is
    due, when ``global_weights`` is entered, and at the end.

    Parameters
    ----------
    replica : Replica[Any]
        The weights, in one fragment.
    options : GossipOptions
        The arguments. With ``order`` combine_while_adapt, messages are transferred during the next
        step: x <- x + mixed - sent.

    Raises
    ------
    ValueError
        The graph does not preserve the mean, or compression is requested for float64 weights.
    """

    def __init__(self, name: str, replica: Replica[Any], options: GossipOptions, process_set: ProcessSet) -> None:
        count, compression = replica.sizes[0], options.compression
        rows = rows_of(options.graph, process_set)
        if compression is not None and replica.dtype.itemsize != 4:
            raise ValueError("compression supports float32 weights only, and some weights are float64")
        if compression is not None and len(rows) != 1:
            raise ValueError(
                f"compression needs constant neighbours, but those of topology {options.graph.name!r} change"
            )
        super().__init__(name, replica, Mean(), options.resync or NEVER, process_set)
        nbytes = count * replica.dtype.itemsize if compression is None else Compressed.capacity(compression, count)
        self._neighbours = neighbours_of(f"{name}.gossip", options.graph, process_set, nbytes)
        self._period, self._overlap = options.every, options.order == ORDERS[1]
        self._mix = self._mixing(options, rows)
        self._round_in_flight = False
        self._gossiped, self._waited = 0, 0.0

    def _mixing(self, options: GossipOptions, rows: list[Flat]) -> Mixing:
        wire = options.compression
        if wire is None:
            return Mix(rows, self._neighbours, self.replica.sizes[0], self.replica.dtype)
        gamma = options.gamma if options.gamma is not None else (1.0 if wire.name == "int8" else 0.4)
        return Compressed(rows[0], self._neighbours, self.replica.flat_copy(0), wire, gamma)

    def stepped(self) -> None:
        steps = self.steps + 1
        if steps % self._period == 0:
            self._complete_round()
            self._mix.begin(partial(self.replica.read, 0))
            self._round_in_flight = True
            if not self._overlap:
                self._complete_round()
        if self.every.due(steps):
            self._complete_round()
        super().stepped()

    def _complete_round(self) -> None:
        if not self._round_in_flight:
            return
        since = time.monotonic()
        mixed = self._mix.complete()
        self._waited += time.monotonic() - since
        self._round_in_flight = False
        if self._overlap:
            mixed += self.replica.flat_copy(0) - self._mix.sent
        self._gossiped += 1
        self.distance = self.replica.distance(0, mixed)
        self.replica.write(0, mixed)

    def exchange_now(self) -> None:
        self._complete_round()
        super().exchange_now()

    def global_weights(self) -> AbstractContextManager[None]:
        self._complete_round()
        return super().global_weights()

    def _finish(self) -> None:
        self._complete_round()
        super()._finish()

    def _extra_work(self) -> Iterator[None]:
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
