"""The base class of methods for ranks that share memory and do not wait for each other.

`ElasticPulls` and `AsyncGossip` derive from it.
"""

from __future__ import annotations

from typing import Any

from ringcomm._src.decentralized.method import Method
from ringcomm._src.decentralized.replicas import Replica
from ringcomm._src.decentralized.workers import Workers
from ringcomm._src.named.process_sets import ProcessSet


class SharedMemoryMethod(Method):
    """A method on a replica with one fragment. Collective.

    It starts with the first rank's weights. ``on_loss``: as in `ringcomm.torch.EASGD`.
    """

    def __init__(self, name: str, replica: Replica[Any], process_set: ProcessSet, on_loss: str) -> None:
        self.replica, self.workers = replica, Workers(name, process_set, on_loss)
        self._flat = replica.broadcast_initial(0, f"{name}.start", process_set)
        self.exchanges = self.bytes = 0
        super().__init__(name, process_set, self.workers.leave)

    def stepped(self) -> None:
        self._count(self.steps + 1)

    def _count(self, steps: int) -> None:
        self.steps = steps
        self.workers.count(steps)

    @property
    def updates(self) -> int:
        """Number of steps of all ranks."""
        return self.workers.updates

    def stats(self) -> dict[str, Any]:
        more = {"distance": self.distance, "lost": self.workers.lost()}
        return self._stats(self.exchanges, self.workers.waited, self.bytes, **more)
