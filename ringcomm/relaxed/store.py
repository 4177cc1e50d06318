"""A parameter store: weights that ranks push gradients to, and pull from, each at its own pace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ringcomm.collectives import broadcast_
from ringcomm.plan_agreement import require_equal
from ringcomm.process_sets import ProcessSet, global_process_set
from ringcomm.relaxed.consistency import Async, Consistency
from ringcomm.relaxed.replicas import ArrayReplica, Flat, next_number
from ringcomm.relaxed.shards import Shards, Workers
from ringcomm.updates import SGD, Update

logger = logging.getLogger("ringcomm")
Scale = str | Callable[[int], float]


class Store:
    """Flat weights, of which parts may have rules of their own. Collective; the first rank's weights are taken.

    Args:
        name: the same on all ranks, and nobody else's.
        weights: this rank's; what the store begins with is written to it.
        parts: (slice, rule) of all of it.
        consistency, servers, scale, compensate, on_loss: as of `ParameterStore`.
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
    ) -> None:
        self.name, self.process_set, self.consistency = name, process_set, consistency
        many = consistency.many(process_set.size())
        self._scale = scale_of(scale)
        if compensate < 0 or (compensate and many):
            raise ValueError(f"compensate={compensate}: not negative, and 0 where gradients are gathered")
        self.workers = Workers(name, process_set, on_loss)
        owners = servers_of(servers, process_set)
        if len(weights):
            broadcast_(weights, process_set.ranks[0], f"{name}.start", process_set)
        self.rules = [rule.core() for _, rule in parts]
        for rule in self.rules:
            rule.set("compensate", compensate)
        self._shards = [
            Shards(f"{name}.{i}", self.workers, weights[where], rule, many, consistency.of_step, owners)
            for i, ((where, _), rule) in enumerate(zip(parts, self.rules, strict=True))
        ]
        self._where = [where for where, _ in parts]
        self._pulled = weights.copy() if compensate else None
        self.clock = self.pushes = self.bytes = 0
        self.finished = False
        self._since = time.monotonic()
        process_set.session().at_end.append(self._warn)

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
                mine = np.zeros(where.stop - where.start, shards_dtype(result)) if gradient is None else gradient[where]
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
            self.clock = max(self.clock, *self._groups())  # what was dropped is of the past
            self.workers.clocks.set(self.workers.rank, self.clock)
        elif self.consistency.staleness is not None:
            behind = self.clock - self.consistency.staleness
            self.workers.wait(lambda: self.workers.clocks.wait(-1, behind, 0.0))

    def pull(self, result: Flat) -> None:
        for where, shards in zip(self._where, self._shards, strict=True):
            shards.pull(result[where])
        if self._pulled is not None:
            self._pulled[:] = result

    def step(self, gradient: Flat | None, result: Flat) -> None:
        """Pushes, waits as the consistency says, and pulls."""
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
        if self.finished:
            return
        self.workers.clocks.set(self.workers.rank, None)
        self._settle()
        since = self.workers.waited
        self.workers.wait(self.workers.all_finished)
        self.workers.waited = since
        self._settle()
        self.workers.meet()
        self.pull(result)
        self.workers.meet()
        self.finished = True
        with suppress(ValueError):  # ringcomm has been shut down
            self.process_set.session().at_end.remove(self._warn)

    def _warn(self) -> None:
        if not self.finished:
            self.finished = True
            self.workers.leave()
            logger.warning("%s has not finished: call finish(), or use it in a with statement", self.name)

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


def shards_dtype(like: Flat | None) -> Any:
    return np.float32 if like is None else like.dtype


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
    """Ranks of the set. Raises ValueError for what names none."""
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


class ParameterStore:
    """Weights that ranks push gradients to, each at its own pace, for NumPy arrays. They lie in memory that the ranks
    of a host share, and whoever pushes applies the rule himself, under locks of 16 KB: there is no server process, and
    no message. Collective; ranks compare names and settings.

    Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.

    Args:
        arrays: this rank's copies of the weights, by name, changed in place; the first rank's are what is begun with.
        rule: of `ringcomm.updates`. With Async and many ranks a momentum does harm (Mitliagkas et al., 1605.09774).
        consistency: `Async()`, `SSP(s)`, `SoftSync(S)`, `Sync()` or `Backup(S)`.
        servers: in whose memory the weights lie: "all", a number, or a list of ranks. They train as the others do.
        scale: "none"; "inverse": a gradient that is t updates late moves the weights by 1/t; or a function of t.
        compensate: g + compensate g g (x - pulled) in place of g (DC-ASGD, arXiv:1609.08326); 0.04 is the paper's.
        on_loss: "end": a rank that died ends the others' waits with PeerLostError; "continue": they go on without it.
        process_set: the ranks, all of one host.

    Raises:
        ValueError: arguments that are none. MismatchError: ranks differ. UnsupportedError: ranks share no memory.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        rule: Update | None = None,
        consistency: Consistency | None = None,
        servers: str | int | Sequence[int] = "all",
        scale: Scale = "none",
        compensate: float = 0.0,
        on_loss: str = "end",
        process_set: ProcessSet = global_process_set,
    ) -> None:
        rule, consistency = rule or SGD(), consistency or Async()
        self._names = list(arrays)
        self._replica = ArrayReplica(list(arrays.values()))
        name = f"store{next_number(process_set)}"
        texts = [f"'{key}' {one.dtype} {one.shape}" for key, one in arrays.items()]
        how = f"ParameterStore, {rule.text()}, {consistency}, servers {servers}"
        require_equal([how, *texts], name, process_set, "ParameterStore")
        self._weights = self._replica.now(0)
        self._store = Store(
            name,
            process_set,
            self._weights,
            [(slice(0, len(self._weights)), rule)],
            consistency,
            servers,
            scale,
            compensate,
            on_loss,
        )
        self._store.set_options(0, rule.options["lr"])
        self._replica.write(0, self._weights)

    def _flat(self, gradients: Mapping[str, np.ndarray[Any, Any]]) -> Flat:
        """Zeros where there is none."""
        unknown = gradients.keys() - set(self._names)
        if unknown:
            raise ValueError(f"there are no weights named {', '.join(sorted(unknown))}")
        flat, at = np.zeros_like(self._weights), 0
        for name, item in zip(self._names, self._replica.items(0), strict=True):
            if name in gradients:
                flat[at : at + item.size] = np.broadcast_to(gradients[name], item.shape).reshape(-1)
            at += item.size
        return flat

    def push_pull(self, gradients: Mapping[str, np.ndarray[Any, Any]], lr: float | None = None) -> None:
        """A step of this rank: hands in gradients of its arrays, waits as the consistency says, and takes the weights
        as they are then. ``lr``: in place of the rule's."""
        if lr is not None:
            self._store.set_options(0, lr)
        self._store.step(self._flat(gradients), self._weights)
        self._replica.write(0, self._weights)

    def push(self, gradients: Mapping[str, np.ndarray[Any, Any]], lr: float | None = None) -> None:
        """The first half of :meth:`push_pull`."""
        if lr is not None:
            self._store.set_options(0, lr)
        self._store.push(self._flat(gradients))

    def pull(self) -> None:
        """The second half: waits as the consistency says, and takes the weights."""
        self._store.wait()
        self._store.pull(self._weights)
        self._replica.write(0, self._weights)

    def finish(self) -> None:
        """This rank pushes no more. When all have finished, the arrays hold the last weights. Collective."""
        self._store.finish(self._weights)
        self._replica.write(0, self._weights)

    def __enter__(self) -> ParameterStore:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.finish()

    @contextmanager
    def global_weights(self) -> Iterator[None]:
        """Within it the arrays hold the store's weights as they are now; afterwards what they held before."""
        before = self._replica.now(0)
        now = np.empty_like(before)
        self._store.pull(now)
        self._replica.write(0, now)
        try:
            yield
        finally:
            self._replica.write(0, before)

    @property
    def updates(self) -> int:
        """That have been applied, of all ranks: what a learning rate may be a function of."""
        return self._store.updates

    def stats(self) -> dict[str, Any]:
        """Of this rank: ``steps``, ``exchanges`` (pushes), ``waited`` (share of the time), ``bytes``, ``staleness``
        (how many pushes were so many updates late, by shard), ``dropped``, ``broken_locks``, ``lost`` (ranks)."""
        return self._store.stats()

    def record(self) -> list[list[tuple[int, int, int]]]:
        """From now on, of every push of this rank: (shard, version read, version applied). Pushes to shards of at most
        16 KB come out bit for bit if they are made again in the order of their versions."""
        return self._store.record()

    def state_dict(self) -> dict[str, Any]:
        """This rank's shard with the rule's state, and its clock. Collective: nobody may push meanwhile."""
        return self._store.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` gave, on as many ranks. Collective."""
        self._store.load(state)
        self._store.pull(self._weights)
        self._replica.write(0, self._weights)
