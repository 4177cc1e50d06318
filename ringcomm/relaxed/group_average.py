"""Means of small groups that change from step to step, which nobody waits for long: WAGMA-SGD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ringcomm.ops import Sum
from ringcomm.process_sets import ProcessSet, global_process_set
from ringcomm.relaxed.periodic import give_back, set_of
from ringcomm.relaxed.quorum import QuorumMethod, QuorumReduction
from ringcomm.relaxed.replicas import Flat, Replica
from ringcomm.topology import Topology


class GroupAverage(QuorumMethod):
    """After a step a rank averages its weights with its group's of that step. The first to come begins, and the others
    take part with the weights that they had after their last step. With x the own weights, and S the sum of n ranks':
    x <- S / n if x is in S, else (S + x) / (n + 1). Ranks that have finished are not counted.

    ``resync`` steps of some rank after the last time, all ranks take the mean, each after the step that it is at.

    Source: Li et al. (WAGMA-SGD), arXiv:2005.00124.

    Args:
        replica: in one fragment.
        graph: of groups: a round's neighbours are a group, all of whom hear each other.
    """

    def __init__(self, name: str, replica: Replica[Any], graph: Topology, resync: int, process_set: ProcessSet) -> None:
        if process_set is not global_process_set:
            raise ValueError("groups are made of all ranks: leave out process_set")
        super().__init__(name, replica, resync, process_set)
        self._flat: Flat = np.zeros(replica.sizes[0] + 1, replica.dtype)  # behind the weights, how many ranks' they are
        self._sets: list[ProcessSet] = []  # all ranks' groups, to be given back
        self._groups = [
            self._group(f"{name}.{number}", graph, number) for number in range(graph.period(process_set.size()))
        ]
        self._reductions += [one for one in self._groups if one is not None]
        self._offer()  # before anybody steps: all meet once more
        self._bell = QuorumReduction(f"{name}.bell", process_set, 1, np.float32, "solo", Sum)
        self._rung = 0  # steps at the last mean of all

    def _group(self, name: str, graph: Topology, number: int) -> QuorumReduction | None:
        """This rank's of that round. Collective."""
        size, me = self.process_set.size(), self.process_set.require_rank()
        members = {rank: sorted([rank, *graph.hears(rank, size, number)]) for rank in range(size)}
        for ranks in dict.fromkeys(map(tuple, members.values())):
            if len(ranks) > 1:
                self._sets.append(set_of(self.process_set.session(), list(ranks)))
                if me in ranks:
                    mine = self._sets[-1]
        if len(members[me]) == 1:
            return None
        return QuorumReduction(name, mine, len(self._flat), self._flat.dtype, "solo", Sum, put=True)

    def _offer(self, counts: bool = True) -> None:
        """The weights as they are now, or nothing, for rounds that others begin."""
        self._flat[:] = counts
        if counts:
            self.replica.read(0, self._flat[:-1])
        for one in self._reductions:
            one.offer(self._flat)

    def stepped(self) -> None:
        super().stepped()
        if self._resync and self._bell_rings():
            self._rung = self.steps
            self._resynchronise()
            return
        group = self._groups[(self.steps - 1) % len(self._groups)]
        if group is not None:
            self._average(group)
        self._offer()

    def _bell_rings(self) -> bool:
        """Once for every rank, whoever it is that rings."""
        due = self.steps - self._rung >= self._resync
        if due or self._bell.has_results:
            self._bell.exchange(None, np.empty(1, np.float32))
            return True
        return False

    def _average(self, group: QuorumReduction) -> None:
        own = self.replica.now(0)
        self._flat[:-1], self._flat[-1] = own, 1
        group.exchange(self._flat, self._flat)
        mixed, count = self._flat[:-1], self._flat[-1]
        if not group.included:
            mixed, count = mixed + own, count + 1
        mixed = mixed / count
        self.distance = self.replica.distance(0, mixed)
        self.replica.write(0, mixed)

    def _mixed(self) -> None:
        self._offer()

    def _finish(self) -> None:
        self._offer(False)
        super()._finish()
        self._bell.close()
        give_back(self.process_set.session(), self._sets)

    def state(self) -> dict[str, Any]:
        return {"means": super().state(), "rung": self._rung}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state["means"])
        self._rung = state["rung"]
        self._offer()
