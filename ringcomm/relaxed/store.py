"""A parameter store: weights that ranks push gradients to, and pull from, each at its own pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ringcomm import _core
from ringcomm.collectives import broadcast_
from ringcomm.process_sets import ProcessSet
from ringcomm.relaxed.across import Across, host_sets
from ringcomm.relaxed.consistency import Consistency
from ringcomm.relaxed.ending import Ending
from ringcomm.relaxed.replicas import Flat
from ringcomm.relaxed.shards import Shards, Workers
from ringcomm.updates import Update

Scale = str | Callable[[int], float]


class Store:
    """Flat weights, of which parts may have rules of their own. Collective; the first rank's weights are taken.

    Args:
        name: the same on all ranks, and nobody else's.
        weights: this rank's; what the store begins with is written to it.
        parts: (slice, rule) of all of it.
        consistency, servers, scale, compensate, on_loss, every: as of `ringcomm.ParameterStore`.
    """

    def __init__(
        self,
        name: str,
        process_set: ProcessSet,
        weights: Flat,
        parts: Sequence[tuple[slice, Update]],
        consistency: Consistency,
        servers: str | int | Sequence[int] = "all",
        scale: Scale = "none",
        compensate: float = 0.0,
        on_loss: str = "end",
        every: int | str = 16,
    ) -> None:
        everybody = process_set
        if len(weights):
            broadcast_(weights, everybody.ranks[0], f"{name}.start", everybody)
        process_set, leaders = host_sets(everybody)
        self.name, self.process_set, self.consistency = name, process_set, consistency
        many = consistency.many(process_set.size())
        self._scale = scale_of(scale)
        if compensate < 0 or (compensate and many):
            raise ValueError(f"compensate={compensate}: not negative, and 0 where gradients are gathered")
        self.workers = Workers(name, process_set, on_loss)
        owners = servers_of(servers, process_set)
        self.rules = [rule.core() for _, rule in parts]
        for rule in self.rules:
            rule.set("compensate", compensate)
        self._shards = [
            Shards(f"{name}.{i}", self.workers, weights[where], rule, many, consistency.of_step, owners)
            for i, ((where, _), rule) in enumerate(zip(parts, self.rules, strict=True))
        ]
        self._where, self._dtype = [where for where, _ in parts], weights.dtype
        self._pulled = weights.copy() if compensate else None
        self._across: Across | None = None
        if leaders is not None and leaders.included():
            how = self.read, self._add, self._put
            self._across = Across(name, leaders, len(weights), weights.dtype, every, *how)
        self.clock = self.pushes = self.bytes = 0
        self._ending = Ending(name, process_set, self.workers.leave)
        self._since = time.monotonic()

    @property
    def finished(self) -> bool:
        return self._ending.finished

    # ---- a worker's steps --------------------------------------------------------------------------------------------
    def set_options(self, number: int, lr: float, **options: float) -> None:
        """Of a part's rule, for this rank's next pushes."""
        self._shards[number].lr = lr
        for name, value in options.items():
            self.rules[number].set(name, value)
        self.rules[number].set("lr", lr)

    def push(self, gradient: Flat | None, result: Flat | None = None) -> None:
        """Hands in a step's gradient (None: an overflow, nothing). ``result``: the weights just after it, if gradients
        are applied at once."""
        gathers = self.consistency.gather != 0
        for where, shards in zip(self._where, self._shards, strict=True):
            if gathers:
                if gradient is None and not self.consistency.of_step:
                    continue
                mine = np.zeros(where.stop - where.start, self._dtype) if gradient is None else gradient[where]
                shards.gather(mine, self.clock, self._scale)
            elif gradient is not None:
                pulled = None if self._pulled is None else self._pulled[where]
                after = None if result is None else result[where]
                shards.apply(gradient[where], after, pulled, self._scale)
            elif result is not None:
                shards.pull(result[where])
        if gradient is not None:
            self.pushes += 1
            self.bytes += gradient.nbytes
        self.clock += 1
        self.workers.clocks.set(self.workers.rank, self.clock)

    def wait(self) -> None:
        """Until this rank may go on."""
        if self.consistency.of_step:
            self.workers.wait(lambda: min(self._groups()) >= self.clock, self._settle)
            # What was dropped is of the past. No shard is behind: nobody pushes to a step that has not begun there.
            self.clock = max(self.clock, min(self._groups()))
            self.workers.clocks.set(self.workers.rank, self.clock)
        elif self.consistency.staleness is not None:
            behind = self.clock - self.consistency.staleness
            self.workers.wait(lambda: self.workers.clocks.wait(-1, behind, 0.0))

    def read(self, result: Flat) -> None:
        """Copies the weights out, for those who only look: this rank's next gradient is of what it has pulled."""
        for where, shards in zip(self._where, self._shards, strict=True):
            shards.read(result[where])

    def pull(self, result: Flat) -> None:
        """Copies the weights out, of which this rank's next gradient is."""
        for where, shards in zip(self._where, self._shards, strict=True):
            shards.pull(result[where])
        if self._pulled is not None:
            self._pulled[:] = result

    def _add(self, change: Flat) -> None:
        self._apply_all(_core.RuleOptions("add", scale=1.0), change)

    def _put(self, weights: Flat) -> None:
        self._apply_all(_core.RuleOptions("put"), weights)

    def _apply_all(self, how: _core.RuleOptions, flat: Flat) -> None:
        for where, shards in zip(self._where, self._shards, strict=True):
            shards.change(how, flat[where])

    def step(self, gradient: Flat | None, result: Flat) -> None:
        """Pushes, waits as the consistency says, and pulls."""
        if self._across is not None:
            self._across.stepped()
        at_once = not self.consistency.gather and self.consistency.staleness is None
        self.push(gradient, result)
        if at_once:
            if self._pulled is not None:
                self._pulled[:] = result
            return
        self.wait()
        self.pull(result)

    def _groups(self) -> list[int]:
        return [group for shards in self._shards for group in shards.groups()] or [self.clock]

    def _settle(self) -> None:
        for shards in self._shards:
            shards.settle()

    # ---- the end -----------------------------------------------------------------------------------------------------
    def finish(self, result: Flat) -> None:
        """This rank pushes no more. Returns when all have finished, with the last weights. Collective."""
        if self._ending.finished:
            return
        self.workers.finish(self._across.answer if self._across is not None else None, self._settle)
        if self._across is not None:
            self._across.finish()
        self.workers.meet()
        self.pull(result)
        self.workers.meet()
        self._ending.finish()

    # ---- what it tells -----------------------------------------------------------------------------------------------
    @property
    def updates(self) -> int:
        """That have been applied, of all ranks."""
        return max((version for shards in self._shards for version in shards.versions()), default=self.clock)

    def stats(self) -> dict[str, Any]:
        staleness: dict[int, int] = {}
        for shards in self._shards:
            for stale, count in shards.staleness.items():
                staleness[stale] = staleness.get(stale, 0) + count
        return {
            "steps": self.clock,
            "exchanges": self.pushes,
            "waited": self.workers.waited / max(time.monotonic() - self._since, 1e-9),
            "bytes": self.bytes,
            "staleness": dict(sorted(staleness.items())),
            "dropped": sum(shards.dropped for shards in self._shards),
            "broken_locks": sum(shards.broken() for shards in self._shards),
            "lost": self.workers.lost(),
            **(self._across.stats() if self._across is not None else {}),
        }

    def record(self) -> list[list[tuple[int, int, int]]]:
        """From now on, of every push of this rank: (shard, version read, version applied), a list for each part."""
        for shards in self._shards:
            shards.log = []
        return [shards.log for shards in self._shards if shards.log is not None]

    def state(self) -> dict[str, Any]:
        """This rank's shards and clock. Collective: nobody may push meanwhile."""
        self.workers.meet()
        memories = [shards.bytes_of_mine() for shards in self._shards]
        state = {"clock": self.clock, "shards": [None if one is None else one.copy() for one in memories]}
        self.workers.meet()
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Collective."""
        self.workers.meet()
        for shards, theirs in zip(self._shards, state["shards"], strict=True):
            mine = shards.bytes_of_mine()
            if (mine is None) != (theirs is None) or (mine is not None and mine.shape != theirs.shape):
                raise ValueError(f"{self.name}: the state is of another number of ranks, or of other weights")
            if mine is not None:
                mine[:] = theirs
        self.clock = state["clock"]
        self.workers.clocks.set(self.workers.rank, self.clock)
        self.workers.meet()


def scale_of(scale: Scale) -> Callable[[int], float] | None:
    """Raises ValueError for what is none."""
    if scale == "none":
        return None
    if scale == "inverse":
        return lambda staleness: 1.0 / max(1, staleness)
    if callable(scale):
        return scale
    raise ValueError(f'scale={scale!r}: "none", "inverse", or a function of the staleness')


def servers_of(servers: str | int | Sequence[int], process_set: ProcessSet) -> list[int]:
    """Ranks of a host's set. Raises ValueError for what names none."""
    if servers == "all":
        return list(range(process_set.size()))
    if isinstance(servers, int) and not isinstance(servers, bool):
        if 0 < servers <= process_set.size():
            return list(range(servers))
        raise ValueError(f"servers={servers}: there are {process_set.size()} ranks")
    ranks = list(servers) if not isinstance(servers, str | bool) else []
    if ranks and all(rank in process_set.ranks for rank in ranks) and len(set(ranks)) == len(ranks):
        return [process_set.ranks.index(rank) for rank in ranks]
    raise ValueError(f'servers={servers!r}: "all", a number of ranks, or a list of them')
