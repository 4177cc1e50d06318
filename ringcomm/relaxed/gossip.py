"""Gossip: ranks average with their neighbours in a graph, by messages, and with nobody else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from ringcomm.relaxed.neighbourhood import Neighbours
from ringcomm.relaxed.periodic import Periodic
from ringcomm.relaxed.replicas import Replica


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
