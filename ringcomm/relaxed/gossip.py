"""Gossip: ranks average with their neighbours in a graph, by messages, and with nobody else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from ringcomm.process_sets import ProcessSet
from ringcomm.relaxed.every import NEVER
from ringcomm.relaxed.host_neighbourhood import HostNeighbours
from ringcomm.relaxed.mixing import Compressed, Mix, PushSum, Talk
from ringcomm.relaxed.neighbourhood import Neighbours
from ringcomm.relaxed.periodic import Periodic
from ringcomm.relaxed.replicas import Replica
from ringcomm.relaxed.rules import Mean
from ringcomm.topology import Topology, topology
from ringcomm.wire_formats import WireFormat

MODES = ("sync", "push_sum")
ORDERS = ("adapt_then_combine", "combine_while_adapt")


class How(NamedTuple):
    """A gossip's arguments, as of `ringcomm.torch.Gossip`."""

    graph: Topology
    mode: str
    every: int
    resync: int
    order: str
    compression: Any
    gamma: float | None

    def settings(self) -> dict[str, Any]:
        """For a comparison between ranks."""
        return self._asdict() | {"graph": self.graph.name}


def checked(
    graph: str | Topology,
    mode: str,
    every: int,
    resync: int,
    order: str,
    compression: Any,
    gamma: float | None,
    modes: tuple[str, ...] = MODES,
) -> How:
    """Raises ValueError for arguments that are none, or do not go together."""
    if mode not in modes:
        raise ValueError(f"mode={mode!r}: {' or '.join(map(repr, modes))}")
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
    if mode not in MODES and (resync or order != ORDERS[0]):
        raise ValueError(f"mode={mode!r} has no rounds: resync and order do not go with it")
    return How(topology(graph), mode, every, resync, order, compression, gamma)


def neighbours_of(name: str, graph: Topology, process_set: ProcessSet, nbytes: int) -> Talk:
    """By shared memory where all ranks have it in common. Collective. ``nbytes``: of a rank's data, at most."""
    node = process_set.node
    kind = HostNeighbours if node is not None and node.size == process_set.size() else Neighbours
    return kind(name, graph, process_set, nbytes)


def rounds(name: str, replica: Replica[Any], how: How, process_set: ProcessSet) -> GossipRounds:
    """The method, of a replica in one fragment. Collective. Raises ValueError for a graph that keeps no mean, and for
    compression of float64 weights."""
    count, compression = replica.sizes[0], how.compression
    if compression is not None and replica.dtype.itemsize != 4:
        raise ValueError("compression is of float32 weights, and there are float64 ones")
    means = Periodic(name, replica, Mean(), how.resync or NEVER, process_set)
    nbytes = count * replica.dtype.itemsize if compression is None else Compressed.capacity(compression, count)
    neighbours = neighbours_of(f"{name}.gossip", how.graph, process_set, nbytes)
    mix: Any
    if how.mode == "push_sum":
        mix = PushSum(neighbours, count, replica.dtype)
    elif compression is None:
        mix = Mix(how.graph, neighbours, count, replica.dtype)
    else:
        gamma = how.gamma if how.gamma is not None else (1.0 if compression.name == "int8" else 0.4)
        mix = Compressed(how.graph, neighbours, count, compression, gamma)
        mix.begin_with(replica.now(0))
    return GossipRounds(replica, mix, neighbours, how.every, how.order == ORDERS[1], means)


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
        self,
        replica: Replica[Any],
        mix: Any,
        neighbours: Neighbours | HostNeighbours,
        every: int,
        overlap: bool,
        means: Periodic,
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
            self._mix.begin(partial(self._replica.read, 0))
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
