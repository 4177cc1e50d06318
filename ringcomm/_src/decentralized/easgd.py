"""Asynchronous elastic averaging (EASGD), with the centre in memory that the ranks of a host share.

`ringcomm.torch.EASGD` uses it for its modes "async" and "round_robin".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ringcomm._src.core import _core
from ringcomm._src.decentralized.every import Every
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.decentralized.shards import Shards
from ringcomm._src.decentralized.shared_memory_method import SharedMemoryMethod
from ringcomm._src.named.process_sets import ProcessSet


class ElasticPulls(SharedMemoryMethod):
    """The method that pulls a replica and the centre towards each other before a step. Collective.

    Parameters
    ----------
    alpha : float
        The pull of one rank, beta/p in `ringcomm.torch.EASGD`.
    turns : bool
        Ranks exchange one after the other, in the order of ranks.
    every, on_loss
        As in `ringcomm.torch.EASGD`.
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
        self._turns = turns
        self.every, self._rule = Every(every), _core.RuleOptions("elastic", alpha=alpha)
        super().__init__(name, replica, process_set, on_loss)
        owners = list(range(process_set.size()))
        self._centre = Shards(name, self.workers, self._flat, self._rule, 0, False, owners)

    def pull_if_due(self) -> None:
        """Exchanges with the centre if an exchange is due. Called before each step."""
        if self.every.due(self.steps + 1):
            self.every.count()
            self._exchange()
            self.every.restart()

    def stepped(self) -> None:
        super().stepped()
        if not self._turns:
            self.workers.advance(self.steps)

    def _exchange(self) -> None:
        if self._turns:
            self.workers.wait(self._is_my_turn, self.workers.clocks)
        self.replica.read(0, self._flat)
        self._centre.apply(None, self._flat, rule=self._rule)
        self.distance = self.replica.distance(0, self._flat)
        self.replica.write(0, self._flat)
        self.exchanges += 1
        self.bytes += self._flat.nbytes
        if self._turns:
            self.workers.advance(self.exchanges)

    def _is_my_turn(self) -> bool:
        rank = self.workers.rank
        previous_clock = self.workers.clocks.of((rank - 1) % self.workers.size)
        return previous_clock is None or previous_clock >= self.exchanges + (rank > 0)

    def exchange_now(self) -> None:
        self._exchange()

    def _current_centre(self) -> Flat:
        centre = np.empty_like(self._flat)
        self._centre.read(centre)
        return centre

    def global_weights(self) -> AbstractContextManager[None]:
        return self.replica.temporarily([self._current_centre()])

    def _finish(self) -> None:
        self._exchange()
        self.workers.finish()
        self._centre.pull(self._flat)
        self.replica.write(0, self._flat)
        self.workers.barrier()

    def stats(self) -> dict[str, Any]:
        return super().stats() | {
            "staleness": dict(sorted(self._centre.staleness.items())),
            "broken_locks": self._centre.broken(),
        }

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "begun": self.every.begun, "centre": self._current_centre()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores the centre from the first rank's state, and this rank's counters. Collective."""
        self.every.begun = state["begun"]
        self._count(state["steps"])
        self.workers.barrier()
        if self.workers.rank == 0:
            self._centre.change(_core.RuleOptions("put"), state["centre"])
        self.workers.barrier()
        self.every.restart()
