"""A parameter store: ranks push gradients to shared weights, and pull the weights, each at its own pace.

`ParameterStore` and the torch optimizers wrap a `Store`, which combines `Shards` with a consistency
model.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ringcomm._src.core import _core
from ringcomm._src.decentralized.across import Across, host_sets
from ringcomm._src.decentralized.method import Method
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.decentralized.shards import AT_ANY_TIME, LOST, Due, Shards
from ringcomm._src.decentralized.spread import SpreadWorkers, is_spread
from ringcomm._src.decentralized.store_options import StoreOptions, scale_of, servers_of
from ringcomm._src.decentralized.updates import Update
from ringcomm._src.decentralized.workers import FINISHED, Workers
from ringcomm._src.named.process_sets import ProcessSet

_UNDER_WAY = 2  # pushes without a reply from other hosts


class Store(Method):
    """The weights of a replica in a parameter store, in parts with separate rules. Collective.

    All ranks start with the first rank's weights.

    Args:
        name: the same on all ranks, and used by no other store.
        replica: this rank's copy, in one fragment.
        parts: (slice, rule) that cover the weights. The rule "get": gradients are gathered, and
            dedicated servers apply them in Python (`Shards.own`).
        cuts: positions at which each part may be cut; none: any position.
    """

    has_own_model = True

    def __init__(
        self,
        name: str,
        process_set: ProcessSet,
        replica: Replica[Any],
        parts: Sequence[tuple[slice, Update]],
        options: StoreOptions,
        cuts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        consistency, servers, scale, compensate, on_loss, every, across = options
        if across not in ("service", "host"):
            raise ValueError(f'across={across!r}: "service" or "host"')
        self.replica, self.consistency, leaders = replica, consistency, None
        self.weights = weights = replica.begin_alike(0, f"{name}.start", process_set)
        if across == "host":
            process_set, leaders = host_sets(process_set)
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
        self._across = Across(name, leaders, weights, every, self._read, self._add, self._put)
        self.exchanges = self.bytes = 0
        self._under_way: deque[list[Callable[[], None]]] = deque()  # pushes, oldest first
        super().__init__(name, process_set, self.workers.leave)

    @staticmethod
    def _workers(name: str, process_set: ProcessSet, owners: list[int], across: str, on_loss: str) -> Any:
        if across == "host" or not is_spread(process_set):
            return Workers(name, process_set, on_loss)
        if on_loss != "end":
            raise ValueError(f"on_loss={on_loss!r}: only ranks that share memory can go on without one that died")
        return SpreadWorkers(name, process_set, owners)

    # ---- a worker's steps --------------------------------------------------------------------------------------------
    def set_options(self, number: int, lr: float, **options: float) -> None:
        """Sets the options of a part's rule for this rank's next pushes."""
        self.shards[number].lr = lr
        for name, value in options.items():
            self.rules[number].set(name, value)
        self.rules[number].set("lr", lr)

    def push(self, gradient: Flat | None) -> None:
        """Pushes a step's gradient (None: skipped after an overflow).

        The caller keeps the gradient unchanged until two pushes later.
        """
        self._collect(_UNDER_WAY - 1 if self.workers.spread else 0)
        self._under_way.append(self._ask_push(gradient, None))

    def _ask_push(self, gradient: Flat | None, result: Flat | None) -> list[Callable[[], None]]:
        self._require_worker()
        after, asked = self.steps + 1, []
        for number, (where, shards) in enumerate(zip(self._where, self.shards, strict=True)):
            tells = after if number == len(self.shards) - 1 else None
            into = None if result is None else result[where]
            mine = gradient[where] if gradient is not None else None
            if mine is None and self._gathers and self.consistency.of_step:
                mine = np.zeros(where.stop - where.start, self._dtype)
            if mine is None:
                asked.append(shards.ask_pull(into, tells))
            elif self._gathers:
                asked.append(shards.ask_gather(mine, self.steps, self._scale, tells))
            else:
                pulled = None if self._pulled is None else self._pulled[where]
                asked.append(shards.ask_apply(mine, into, pulled, self._scale, clock=tells))
        if gradient is not None:
            self.exchanges += 1
            self.bytes += gradient.nbytes
        self.steps = after
        self.workers.advance(after)
        return asked

    def _require_worker(self) -> None:
        if self.workers.rank in self._only_serve:
            raise ValueError(f"{self.name}: rank {self.workers.rank} is a dedicated server: call serve()")

    def _collect(self, keep: int) -> None:
        """Waits for all pushes except the last ``keep``."""
        while len(self._under_way) > keep:
            for answer in self._under_way.popleft():
                answer()

    def due(self) -> Due | None:
        """Returns the condition for this rank's next step, or None."""
        if self.consistency.of_step:
            return AT_ANY_TIME, self.steps
        if self.consistency.staleness is not None:
            return self.steps - self.consistency.staleness, 0
        return None

    def global_weights(self) -> AbstractContextManager[None]:
        """Returns a context manager in which the replica holds the current weights.

        The next gradient is still computed from the weights that were pulled.
        """
        now = np.empty_like(self.weights)
        self._read(now)
        return self.replica.holding([now])

    def _read(self, result: Flat) -> None:
        for where, shards in zip(self._where, self.shards, strict=True):
            shards.read(result[where])

    def pull(self, due: Due | None = None) -> None:
        """Waits until ``due`` is reached, then pulls the weights, from which the next gradient is computed."""
        parts = zip(self._where, self.shards, strict=True)
        self._under_way.append([shards.ask_pull(self.weights[where], due=due) for where, shards in parts])
        self._take()
        if due is not None and due[1] > 0:
            # Gradients of earlier steps were dropped, so this rank skips them. No shard is behind:
            # no rank pushes to a step that has not begun there.
            self.steps = max(self.steps, min(self._groups()))
            self.workers.advance(self.steps)

    def _take(self) -> None:
        """Waits for all requests, and writes the pulled weights to the replica."""
        self._collect(0)
        if self._pulled is not None:
            self._pulled[:] = self.weights
        self.replica.write(0, self.weights)

    def exchange_now(self) -> None:
        self.pull()

    def rows(self, number: int, begins: Any, width: int, gradient: Flat | None, result: Flat | None) -> None:
        """Applies the rule of a part immediately to rows of ``width`` elements, or reads the rows."""
        how = self.rules[number] if gradient is not None else _core.RuleOptions("get")
        self.shards[number].rows(how, begins, width, gradient, result)

    def _add(self, change: Flat) -> None:
        self._apply_all(_core.RuleOptions("add", scale=1.0), change)

    def _put(self, weights: Flat) -> None:
        self._apply_all(_core.RuleOptions("put"), weights)

    def _apply_all(self, how: _core.RuleOptions, flat: Flat) -> None:
        for where, shards in zip(self._where, self.shards, strict=True):
            shards.change(how, flat[where])

    def step(self, gradient: Flat | None) -> None:
        """Pushes, waits as the consistency requires, and pulls."""
        self._across.stepped()
        at_once = not self._gathers and self.consistency.staleness is None
        self._under_way.append(self._ask_push(gradient, self.weights if at_once else None))
        if at_once:
            self._take()
        else:
            self.pull(self.due())

    def _groups(self) -> list[int]:
        return [group for shards in self.shards for group in shards.groups()] or [self.steps]

    def settle(self) -> None:
        for shards in self.shards:
            shards.settle()

    # ---- the end -----------------------------------------------------------------------------------------------------
    def _finish(self, serve: Callable[[], None] = lambda: None) -> None:
        """Returns with the final weights when all ranks have finished. ``serve``: called meanwhile."""
        self._collect(0)
        if self.workers.spread:
            self.workers.advance(None)
            self._under_way.append([shards.ask_pull(None, FINISHED) for shards in self.shards])
            self.settle()
            serve()
            self.pull((LOST, 0))
        else:

            def answer(until: Callable[[], bool]) -> None:
                serve()
                self._across.answer(until)

            self.workers.finish(answer, self.settle)
            self._across.finish()
            self.workers.meet()
            self.pull()
        self.workers.part()

    # ---- statistics and state ----------------------------------------------------------------------------------------
    @property
    def updates(self) -> int:
        """Number of updates that have been applied, of all ranks."""
        return max((version for shards in self.shards for version in shards.versions()), default=self.steps)

    def stats(self) -> dict[str, Any]:
        more = {
            "staleness": dict(sorted(sum((shards.staleness for shards in self.shards), Counter()).items())),
            "dropped": sum(shards.dropped for shards in self.shards),
            "broken_locks": sum(shards.broken() for shards in self.shards),
            "lost": self.workers.lost(),
        }
        return self._stats(self.exchanges, self.workers.waited, self.bytes, **more, **self._across.stats())

    def record(self) -> list[list[tuple[int, int, int]]]:
        """Starts a log of this rank's pushes: (shard, version read, version applied), one list per part."""
        for shards in self.shards:
            shards.log = []
        return [shards.log for shards in self.shards if shards.log is not None]

    def state(self) -> dict[str, Any]:
        """Returns this rank's shards and clock. Collective: no rank may push meanwhile."""
        self.workers.meet()
        memories = [shards.bytes_of_mine() for shards in self.shards]
        state = {"clock": self.steps, "shards": [None if one is None else one.copy() for one in memories]}
        self.workers.meet()
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned. Collective."""
        self.workers.meet()
        for shards, theirs in zip(self.shards, state["shards"], strict=True):
            mine = shards.bytes_of_mine()
            if (mine is None) != (theirs is None) or (mine is not None and mine.shape != theirs.shape):
                raise ValueError(f"{self.name}: the state is of another number of ranks, or of other weights")
            if mine is not None:
                mine[:] = theirs
        self.steps = state["clock"]
        self.workers.advance(self.steps)
        self.workers.meet()
        self.pull()
