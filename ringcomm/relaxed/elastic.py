"""Asynchronous elastic averaging: a centre in memory that a host's ranks share, to which each comes when it likes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ringcomm import _core
from ringcomm.collectives import broadcast_
from ringcomm.process_sets import ProcessSet
from ringcomm.relaxed.ending import Ending
from ringcomm.relaxed.every import Every
from ringcomm.relaxed.replicas import Replica
from ringcomm.relaxed.shards import Shards
from ringcomm.relaxed.workers import Workers


class ElasticPulls:
    """Pulls a replica to the centre and the centre to it, with the weights before a step. Collective.

    Args:
        turns: ranks come one after the other, in the order of ranks.
        others: as of `ringcomm.torch.EASGD`.
    """

    has_own_model = True

    def __init__(
        self,
        name: str,
        replica: Replica[Any],
        every: int | str,
        alpha: float,
        turns: bool,
        process_set: ProcessSet,
        on_loss: str = "end",
    ) -> None:
        self.name, self._replica, self._set, self._turns = name, replica, process_set, turns
        self.every, self._how = Every(every), _core.RuleOptions("elastic", alpha=alpha)
        self.workers = Workers(name, process_set, on_loss)
        self._flat = replica.now(0)
        if len(self._flat):
            broadcast_(self._flat, process_set.ranks[0], f"{name}.start", process_set)
        replica.write(0, self._flat)
        owners = list(range(process_set.size()))
        self._centre = Shards(name, self.workers, self._flat, self._how, 0, False, owners)
        self.steps = self.exchanges = self.bytes = 0
        self.distance = 0.0
        self._ending = Ending(name, process_set, self.workers.leave)
        self._since = time.monotonic()

    def pull_if_due(self) -> None:
        """A step is about to be made."""
        if self.every.due(self.steps + 1):
            self.every.count()
            self._exchange()
            self.every.restart()

    def stepped(self) -> None:
        self.steps += 1
        self.workers.count(self.steps)
        if not self._turns:
            self.workers.advance(self.steps)

    def _exchange(self) -> None:
        if self._turns:
            self.workers.wait(self._is_my_turn)
        self._replica.read(0, self._flat)
        self._centre.apply(None, self._flat, how=self._how)
        self.distance = self._replica.distance(0, self._flat)
        self._replica.write(0, self._flat)
        self.exchanges += 1
        self.bytes += self._flat.nbytes
        if self._turns:
            self.workers.advance(self.exchanges)

    def _is_my_turn(self) -> bool:
        rank = self.workers.rank
        before = self.workers.clocks.of((rank - 1) % self.workers.size)
        return before is None or before >= self.exchanges + (rank > 0)

    def exchange_now(self) -> None:
        self._exchange()

    @contextmanager
    def global_weights(self) -> Iterator[None]:
        before, centre = self._replica.now(0), np.empty_like(self._flat)
        self._centre.read(centre)
        self._replica.write(0, centre)
        try:
            yield
        finally:
            self._replica.write(0, before)

    def finish(self) -> None:
        if self._ending.finished:
            return
        self._exchange()
        self.workers.finish()
        self._centre.pull(self._flat)
        self._replica.write(0, self._flat)
        self.workers.meet()
        self._ending.finish()

    @property
    def updates(self) -> int:
        """Steps of all ranks."""
        return self.workers.updates

    def stats(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "exchanges": self.exchanges,
            "waited": self.workers.waited / max(time.monotonic() - self._since, 1e-9),
            "bytes": self.bytes,
            "distance": self.distance,
            "staleness": dict(sorted(self._centre.staleness.items())),
            "broken_locks": self._centre.broken(),
            "lost": self.workers.lost(),
        }

    def state(self) -> dict[str, Any]:
        centre = np.empty_like(self._flat)
        self._centre.read(centre)
        return {"steps": self.steps, "begun": self.every.begun, "centre": centre}

    def load(self, state: Mapping[str, Any]) -> None:
        """Collective. The first rank's centre is taken."""
        self.steps, self.every.begun = state["steps"], state["begun"]
        self.workers.count(self.steps)
        self.workers.meet()
        if self.workers.rank == 0:
            self._centre.change(_core.RuleOptions("put"), state["centre"])
        self.workers.meet()
        self.every.restart()
