"""A parameter store: weights that ranks push gradients to, and pull from, each at its own pace."""

from __future__ import annotations

import itertools
import time
from collections import deque
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
from ringcomm.relaxed.shards import AT_ANY_TIME, LOST, Due, Shards
from ringcomm.relaxed.spread import SpreadWorkers, is_spread
from ringcomm.relaxed.store_options import Scale, scale_of, servers_of
from ringcomm.relaxed.workers import FINISHED, Workers
from ringcomm.updates import Update

_UNDER_WAY = 2  # pushes that other hosts have not answered yet


class Store:
    """Flat weights, of which parts may have rules of their own. Collective; the first rank's weights are taken.

    Args:
        name: the same on all ranks, and nobody else's.
        weights: this rank's; what the store begins with is written to it.
        parts: (slice, rule) of all of it. The rule "get": gradients are gathered, and applied by hand where they are
            (`Shards.own`), by ranks that do nothing else.
        cuts: of each part, where it may be cut; if none are given, anywhere.
        consistency, servers, scale, compensate, on_loss, every, across: as of `ringcomm.ParameterStore`.
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
        across: str = "service",
        cuts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if across not in ("service", "host"):
            raise ValueError(f'across={across!r}: "service" or "host"')
        everybody, leaders = process_set, None
        if len(weights):
            broadcast_(weights, everybody.ranks[0], f"{name}.start", everybody)
        if across == "host":
            process_set, leaders = host_sets(everybody)
        self.name, self.process_set, self.consistency = name, process_set, consistency
        by_hand = any(rule.rule == "get" for _, rule in parts)
        if by_hand and leaders is not None:
            raise ValueError(f'{name}: across="host" needs a rule that is native')
        many = consistency.many(process_set.size()) or int(by_hand)
        self._scale, self._gathers = scale_of(scale), many > 0
        if compensate < 0 or (compensate and many):
            raise ValueError(f"compensate={compensate}: not negative, and 0 where gradients are gathered")
        owners = servers_of(servers, process_set)
        self.workers = self._workers(name, process_set, owners, across, on_loss)
        self._only_serve = owners if by_hand or not self.workers.threaded else []
        if len(self._only_serve) == process_set.size():
            why = "a rule that is not native" if by_hand else "MPI below MPI_THREAD_MULTIPLE"
            raise ValueError(f"{name}: {why} needs dedicated servers: give servers= a part of the ranks")
        self.rules = [rule.core() for _, rule in parts]
        for rule in self.rules:
            rule.set("compensate", compensate)
        self.shards = [
            Shards(f"{name}.{i}", self.workers, weights[where], rule, many, consistency.of_step, owners, ends)
            for i, ((where, _), rule, ends) in enumerate(
                zip(parts, self.rules, cuts or itertools.repeat(()), strict=False)
            )
        ]
        self._where, self._dtype = [where for where, _ in parts], weights.dtype
        self._pulled = weights.copy() if compensate else None
        self._across: Across | None = None
        if leaders is not None and leaders.included():
            how = self.read, self._add, self._put
            self._across = Across(name, leaders, len(weights), weights.dtype, every, *how)
        self.clock = self.pushes = self.bytes = 0
        self._under_way: deque[list[Callable[[], None]]] = deque()  # pushes, oldest first
        self._ending = Ending(name, process_set, self.workers.leave)
        self._since = time.monotonic()

    @staticmethod
    def _workers(name: str, process_set: ProcessSet, owners: list[int], across: str, on_loss: str) -> Any:
        if across == "host" or not is_spread(process_set):
            return Workers(name, process_set, on_loss)
        if on_loss != "end":
            raise ValueError(f"on_loss={on_loss!r}: only ranks that share memory can go on without one that died")
        return SpreadWorkers(name, process_set, owners)

    @property
    def finished(self) -> bool:
        return self._ending.finished

    # ---- a worker's steps --------------------------------------------------------------------------------------------
    def set_options(self, number: int, lr: float, **options: float) -> None:
        """Of a part's rule, for this rank's next pushes."""
        self.shards[number].lr = lr
        for name, value in options.items():
            self.rules[number].set(name, value)
        self.rules[number].set("lr", lr)

    def push(self, gradient: Flat | None) -> None:
        """Hands in a step's gradient (None: an overflow, nothing), which is let alone until two pushes later."""
        self._collect(_UNDER_WAY - 1 if self.workers.spread else 0)
        self._under_way.append(self._ask_push(gradient, None))

    def _ask_push(self, gradient: Flat | None, result: Flat | None) -> list[Callable[[], None]]:
        self._require_worker()
        after, asked = self.clock + 1, []
        for number, (where, shards) in enumerate(zip(self._where, self.shards, strict=True)):
            tells = after if number == len(self.shards) - 1 else None
            into = None if result is None else result[where]
            mine = gradient[where] if gradient is not None else None
            if mine is None and self._gathers and self.consistency.of_step:
                mine = np.zeros(where.stop - where.start, self._dtype)
            if mine is None:
                asked.append(shards.ask_pull(into, tells))
            elif self._gathers:
                asked.append(shards.ask_gather(mine, self.clock, self._scale, tells))
            else:
                pulled = None if self._pulled is None else self._pulled[where]
                asked.append(shards.ask_apply(mine, into, pulled, self._scale, clock=tells))
        if gradient is not None:
            self.pushes += 1
            self.bytes += gradient.nbytes
        self.clock = after
        self.workers.advance(after)
        return asked

    def _require_worker(self) -> None:
        if self.workers.rank in self._only_serve:
            raise ValueError(f"{self.name}: rank {self.workers.rank} is a dedicated server: call serve()")

    def _collect(self, keep: int) -> None:
        """Waits for all pushes but so many."""
        while len(self._under_way) > keep:
            for answer in self._under_way.popleft():
                answer()

    def due(self) -> Due | None:
        """When this rank may go on."""
        if self.consistency.of_step:
            return AT_ANY_TIME, self.clock
        if self.consistency.staleness is not None:
            return self.clock - self.consistency.staleness, 0
        return None

    def read(self, result: Flat) -> None:
        """Copies the weights out, for those who only look: this rank's next gradient is of what it has pulled."""
        for where, shards in zip(self._where, self.shards, strict=True):
            shards.read(result[where])

    def pull(self, result: Flat, due: Due | None = None) -> None:
        """Copies the weights out, of which this rank's next gradient is, once that is due."""
        parts = zip(self._where, self.shards, strict=True)
        asked = [shards.ask_pull(result[where], due=due) for where, shards in parts]
        self._under_way.append(asked)
        self._collect(0)
        if self._pulled is not None:
            self._pulled[:] = result
        if due is not None and due[1] > 0:
            # What was dropped is of the past. No shard is behind: nobody pushes to a step that has not begun there.
            self.clock = max(self.clock, min(self._groups()))
            self.workers.advance(self.clock)

    def rows(self, number: int, begins: Any, width: int, gradient: Flat | None, result: Flat | None) -> None:
        """Of a part: applies its rule at once to rows of so many elements, which begin there, or reads them."""
        how = self.rules[number] if gradient is not None else _core.RuleOptions("get")
        self.shards[number].rows(how, begins, width, gradient, result)

    def _add(self, change: Flat) -> None:
        self._apply_all(_core.RuleOptions("add", scale=1.0), change)

    def _put(self, weights: Flat) -> None:
        self._apply_all(_core.RuleOptions("put"), weights)

    def _apply_all(self, how: _core.RuleOptions, flat: Flat) -> None:
        for where, shards in zip(self._where, self.shards, strict=True):
            shards.change(how, flat[where])

    def step(self, gradient: Flat | None, result: Flat) -> None:
        """Pushes, waits as the consistency says, and pulls."""
        if self._across is not None:
            self._across.stepped()
        at_once = not self._gathers and self.consistency.staleness is None
        self._under_way.append(self._ask_push(gradient, result if at_once else None))
        if not at_once:
            return self.pull(result, self.due())
        self._collect(0)
        if self._pulled is not None:
            self._pulled[:] = result

    def _groups(self) -> list[int]:
        return [group for shards in self.shards for group in shards.groups()] or [self.clock]

    def settle(self) -> None:
        for shards in self.shards:
            shards.settle()

    # ---- the end -----------------------------------------------------------------------------------------------------
    def finish(self, result: Flat, serve: Callable[[], None] = lambda: None) -> None:
        """This rank pushes no more. Returns when all have finished, with the last weights. Collective. ``serve``: what
        it does meanwhile."""
        if self._ending.finished:
            return
        self._collect(0)
        if self.workers.spread:
            self.workers.advance(None)
            self._under_way.append([shards.ask_pull(None, FINISHED) for shards in self.shards])
            self.settle()
            serve()
            self.pull(result, (LOST, 0))
        else:
            self.workers.finish(self._across.answer if self._across is not None else lambda until: serve(), self.settle)
            if self._across is not None:
                self._across.finish()
            self.workers.meet()
            self.pull(result)
        self.workers.part()
        self._ending.finish()

    # ---- what it tells -----------------------------------------------------------------------------------------------
    @property
    def updates(self) -> int:
        """That have been applied, of all ranks."""
        return max((version for shards in self.shards for version in shards.versions()), default=self.clock)

    def stats(self) -> dict[str, Any]:
        staleness: dict[int, int] = {}
        for shards in self.shards:
            for stale, count in shards.staleness.items():
                staleness[stale] = staleness.get(stale, 0) + count
        return {
            "steps": self.clock,
            "exchanges": self.pushes,
            "waited": self.workers.waited / max(time.monotonic() - self._since, 1e-9),
            "bytes": self.bytes,
            "staleness": dict(sorted(staleness.items())),
            "dropped": sum(shards.dropped for shards in self.shards),
            "broken_locks": sum(shards.broken() for shards in self.shards),
            "lost": self.workers.lost(),
            **(self._across.stats() if self._across is not None else {}),
        }

    def record(self) -> list[list[tuple[int, int, int]]]:
        """From now on, of every push of this rank: (shard, version read, version applied), a list for each part."""
        for shards in self.shards:
            shards.log = []
        return [shards.log for shards in self.shards if shards.log is not None]

    def state(self) -> dict[str, Any]:
        """This rank's shards and clock. Collective: nobody may push meanwhile."""
        self.workers.meet()
        memories = [shards.bytes_of_mine() for shards in self.shards]
        state = {"clock": self.clock, "shards": [None if one is None else one.copy() for one in memories]}
        self.workers.meet()
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Collective."""
        self.workers.meet()
        for shards, theirs in zip(self.shards, state["shards"], strict=True):
            mine = shards.bytes_of_mine()
            if (mine is None) != (theirs is None) or (mine is not None and mine.shape != theirs.shape):
                raise ValueError(f"{self.name}: the state is of another number of ranks, or of other weights")
            if mine is not None:
                mine[:] = theirs
        self.clock = state["clock"]
        self.workers.advance(self.clock)
        self.workers.meet()
