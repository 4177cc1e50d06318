"""Gradients, or what steps have changed, averaged as soon as a quorum has come: eager-SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ringcomm.ops import Average
from ringcomm.process_sets import ProcessSet
from ringcomm.relaxed.quorum import Quorum, QuorumMethod, QuorumReduction
from ringcomm.relaxed.replicas import Flat, Replica


class Eager(QuorumMethod):
    """Rounds begin once a quorum has come; who is late takes what came of those that it has missed, and what it brings
    is in the next. So every rank uses the sum of all ranks' means, at times several together: replicas differ by what
    is on its way, and by what an optimizer's momentum makes of that. After ``resync`` rounds all take the mean.

    Source: Li et al. (eager-SGD), arXiv:1908.04207, where results that a rank has missed are lost to it.

    Args:
        replica: the weights.
        travelling: what is averaged, in one fragment: what ``exchange`` reads and writes.
        others: as of `ringcomm.torch.Eager`.
    """

    def __init__(
        self,
        name: str,
        replica: Replica[Any],
        travelling: Replica[Any],
        quorum: Quorum,
        resync: int,
        process_set: ProcessSet,
    ) -> None:
        super().__init__(name, replica, resync, process_set)
        self._travelling, self._resyncs = travelling, 0
        self._flat: Flat = np.empty(travelling.sizes[0] + 1, travelling.dtype)  # behind it, how many steps it is of
        self._rounds = QuorumReduction(f"{name}.eager", process_set, len(self._flat), self._flat.dtype, quorum, Average)
        self._reductions.append(self._rounds)
        self._steps = 0.0  # of all ranks, over their number

    def exchange(self, counted: bool = True) -> bool:
        """Gives what there is now, or zeros, and puts what came of rounds in its place. True: there is something."""
        self._flat[-1] = 1
        if counted:
            self._travelling.read(0, self._flat[:-1])
        else:
            self._flat[:-1] = 0
        self._use(self._results(self._flat))
        return True

    def _results(self, given: Flat | None) -> Flat:
        self._rounds.exchange(given, self._flat)
        self._steps += float(self._flat[-1])
        return self._flat[:-1]

    def _use(self, results: Flat) -> None:
        self._travelling.write(0, results)

    def stepped(self) -> None:
        super().stepped()
        if self._resync and self._rounds.rounds >= (self._resyncs + 1) * self._resync:
            self._resyncs += 1
            self._resynchronise()

    def _finish(self, take: Callable[[], Any] = lambda: None) -> None:
        """``take`` uses what ``exchange`` has written: this rank makes no step of its own any more."""
        while not self._rounds.included:
            self._use(self._results(None))
            take()
        super()._finish()

    @property
    def updates(self) -> int:
        """Steps of all ranks, as far as rounds have told."""
        return max(super().updates, round(self._steps * self.process_set.size()))

    def state(self) -> dict[str, Any]:
        given, kept = self._rounds.save()
        rounds = {"rounds": self._rounds.rounds, "resyncs": self._resyncs, "steps": self._steps}
        return rounds | {"means": super().state(), "given": given, "kept": kept}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state["means"])
        self._rounds.rounds, self._resyncs, self._steps = state["rounds"], state["resyncs"], state["steps"]
        self._rounds.restore(state["given"], state["kept"])


class EagerChanges(Eager):
    """What a step has changed of the weights is averaged so: x <- x before it + what came of rounds."""

    def __init__(self, name: str, replica: Replica[Any], quorum: Quorum, resync: int, process_set: ProcessSet) -> None:
        super().__init__(name, replica, replica, quorum, resync, process_set)
        self._last = replica.now(0)

    def exchange(self, counted: bool = True) -> bool:
        self._flat[:-1], self._flat[-1] = self.replica.now(0) - self._last, 1
        self._use(self._results(self._flat))
        return True

    def _use(self, results: Flat) -> None:
        self._last += results
        self.distance = self.replica.distance(0, self._last)
        self.replica.write(0, self._last)
        self.replica.read(0, self._last)  # halves round

    def stepped(self) -> None:
        self.exchange()
        super().stepped()

    def _mixed(self) -> None:
        self.replica.read(0, self._last)

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self.replica.read(0, self._last)
