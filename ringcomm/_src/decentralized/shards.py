"""Weights that are distributed over the memory of their servers, on this host or other hosts.

`LocalShard` works in shared memory; `RemoteShard` (spread.py) sends requests to the owner. `Shards`
splits one flat array over both kinds. `Store` and `ElasticPulls` use it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringcomm._src.core import _core
from ringcomm._src.decentralized.replicas import Flat
from ringcomm._src.decentralized.workers import Workers

Due = tuple[int, int]  # minimum of every worker's clock, and minimum number of gathered updates
LOST = 2**63 - 2  # clock that only ranks that have finished or died reach
AT_ANY_TIME = -(2**63)  # as the minimum of the clocks: no condition
_STRIPE = 16384  # bytes; shards are cut at multiples of it


class Outcome(NamedTuple):
    """The result of a request to a shard.

    ``version``: the version before the request; ``group``: number of gathered updates; ``arrival``:
    outcome of a gradient that is gathered.
    """

    version: int
    group: int
    arrival: str = "applied"


Answer = Callable[[], Outcome]  # waits for the result
Ranges = NDArray[np.int64]  # rows of (first element, number of elements)
Arrays = tuple[Flat | None, Flat | None, Flat | None]  # gradient, weights that were pulled, result
NOTHING: Arrays = (None, None, None)


def whole(count: int) -> Ranges:
    """Returns the range that covers a complete shard."""
    return np.array([[0, count]], np.int64)


class LocalShard:
    """A shard in memory that this rank shares. This rank performs the operations itself."""

    near = True

    def __init__(self, workers: Workers, shard: _core.Shard, clocks: _core.Clocks, rule: _core.RuleOptions) -> None:
        self._workers, self.shard, self.clocks, self._rule = workers, shard, clocks, rule
        self.version, self.group, self.broken = shard.version, shard.group, shard.broken

    def apply(
        self, how: _core.RuleOptions, ranges: Ranges, arrays: Arrays, clock: int | None = None, due: Due | None = None
    ) -> Answer:
        """Applies a rule to ranges of the shard. The arrays hold the ranges' elements, concatenated.

        Waits first until ``due`` is reached, if it is given.
        """
        if due is not None:
            self._workers.wait(lambda: self._is_due(*due), self.clocks, lambda: self.settle(self._rule))
        addresses = [0 if one is None else one.ctypes.data for one in arrays]
        version = self.shard.apply_ranges(how, ranges.ctypes.data, len(ranges), *addresses)
        return lambda: Outcome(version, 0)

    def _is_due(self, clock: int, group: int) -> bool:
        if not self.clocks.wait(-1, clock, 0.0) or (group and self.shard.group() < group):
            return False
        return clock < LOST or not self.shard.gathers_now()

    def gather(self, how: _core.RuleOptions, step: int, gradient: Flat, clock: int | None = None) -> Answer:
        """Adds a gradient to the next gathered update. Waits while an earlier update is in progress."""
        while True:
            seen = self.clocks.ticks()
            arrival = self.shard.gather(how, step, gradient.ctypes.data, self.clocks)
            if arrival != "full":
                break
            self._workers.sleep(self.clocks, seen)
            self._workers.check()
        self.clocks.wake()
        return lambda: Outcome(self.shard.version(), 0, arrival)

    def settle(self, how: _core.RuleOptions) -> None:
        if self.shard.settle(how, self.clocks):
            self.clocks.wake()


class Shards:
    """One flat array of weights, divided evenly over its servers, independently of tensor boundaries. Collective."""

    def __init__(
        self,
        name: str,
        workers: Any,
        weights: Flat,
        how: _core.RuleOptions,
        many: int,
        of_step: bool,
        servers: list[int],
        ends: Sequence[int] = (),
    ) -> None:
        """``weights``: equal on all ranks. ``many`` > 0: gradients are gathered.

        ``ends``: where the array may be cut; if none are given, at any stripe.
        """
        self.workers, self._how, self._many = workers, how, many
        self._wide = weights.dtype == np.float64
        self.parts = _cut(weights, len(servers), ends)
        self.mine = servers.index(workers.rank) if workers.rank in servers else None
        # Gradients of a step have separate buffers, so that they are added in the order of ranks.
        self._sums = workers.size if of_step and many else min(many, 1)
        self._memory: Flat | None = None
        if self.mine is not None:
            part = self.parts[self.mine]
            count = part.stop - part.start
            self._memory = workers.allocate(_core.Shard.bytes(count, self._wide, how.states, self._sums))
        addresses = workers.addresses(servers, self._memory, f"{name}.shards")
        self._shards = [
            self._shard(f"{name}.shards", address, owner, part, of_step)
            for address, owner, part in zip(addresses, servers, self.parts, strict=True)
        ]
        if self.mine is not None:
            start = np.ascontiguousarray(weights[self.parts[self.mine]])
            self._shards[self.mine].shard.make(start.ctypes.data)
        self.seen = [0] * len(servers)  # version of each shard that was pulled last
        self.staleness: Counter[int] = Counter()
        self.dropped = 0
        self.log: list[tuple[int, int, int]] | None = None  # (shard, version read, version applied) per push
        # Each rank begins with a different shard, to spread the load. Remote shards come first.
        order = [(workers.rank + i) % len(servers) for i in range(len(servers))]
        self._order = sorted(order, key=lambda number: self._shards[number].near)
        workers.meet()

    def _shard(self, name: str, address: int, owner: int, part: slice, of_step: bool) -> Any:
        workers, count = self.workers, part.stop - part.start
        if not address:
            return workers.far(name, owner, count, 8 if self._wide else 4)
        shard = _core.Shard(
            address,
            owner,
            count,
            self._wide,
            self._how.states,
            self._many,
            of_step,
            self._sums,
            workers.rank if self._sums > 1 else 0,
            workers.node,
            workers.node_rank,
        )
        clocks = workers.clocks_at(owner)
        if workers.spread and owner == workers.rank:
            workers.serve(name, shard, clocks, self._how)
        return LocalShard(workers, shard, clocks, self._how)

    def __iter__(self) -> Iterator[tuple[int, Any, slice]]:
        return ((number, self._shards[number], self.parts[number]) for number in self._order)

    # ---- requests: remote shards work in the background; call the result to wait for them ----------------------------
    def ask_pull(
        self, result: Flat | None, clock: int | None = None, due: Due | None = None, counts: bool = True
    ) -> Callable[[], None]:
        """Copies the weights out. With ``result`` None, only sends this rank's clock to remote shards.

        ``counts``: this rank's next gradient is computed from these weights.
        """
        get = _core.RuleOptions("get")
        answers = [
            (number, shard.apply(get, _ranges(result, part), (None, None, _piece(result, part)), clock, due))
            for number, shard, part in self
            if result is not None or not shard.near
        ]

        def collect() -> None:
            for number, answer in answers:
                version = answer().version
                if counts and result is not None:
                    self.seen[number] = version

        return collect

    def ask_apply(
        self,
        gradient: Flat | None,
        result: Flat | None,
        pulled: Flat | None = None,
        scale: Callable[[int], float] | None = None,
        how: _core.RuleOptions | None = None,
        clock: int | None = None,
    ) -> Callable[[], None]:
        """Applies the rule immediately.

        ``result``: receives the new weights (for the elastic rule: those of the replica).
        ``scale``: factor of the learning rate as a function of the gradient's staleness.
        """
        how = how or self._how
        answers = []
        for number, shard, part in self:
            if scale is not None:
                how.set("scale", 1.0)
                how.set("lr", self.lr * scale(max(shard.version() - self.seen[number], 0)))
            arrays = _piece(gradient, part), _piece(pulled, part), _piece(result, part)
            answers.append((number, self.seen[number], shard.apply(how, whole(part.stop - part.start), arrays, clock)))

        def collect() -> None:
            for number, seen, answer in answers:
                before = answer().version
                self.staleness[max(before - seen, 0)] += 1
                if self.log is not None:
                    self.log.append((number, seen, before))
                if result is not None:
                    self.seen[number] = before + 1

        return collect

    lr = 0.0  # learning rate, for rules with a `scale`

    def ask_gather(
        self, gradient: Flat, step: int, scale: Callable[[int], float] | None = None, clock: int | None = None
    ) -> Callable[[], None]:
        """Adds a gradient to the next gathered update, which happens when enough gradients have arrived."""
        answers = []
        for number, shard, part in self:
            seen = self.seen[number]
            self._how.set("scale", 1.0 if scale is None else scale(max(shard.version() - seen, 0)))
            answers.append((seen, shard.gather(self._how, step, gradient[part], clock)))

        def collect() -> None:
            for seen, answer in answers:
                outcome = answer()
                self.staleness[max(outcome.version - seen, 0)] += 1
                self.dropped += outcome.arrival == "dropped"

        return collect

    # ---- blocking forms ----------------------------------------------------------------------------------------------
    def read(self, result: Flat) -> None:
        """Copies the weights out."""
        self.ask_pull(result, counts=False)()

    def pull(self, result: Flat) -> None:
        """Copies the weights out, and records that this rank's next gradient is computed from them."""
        self.ask_pull(result)()

    def apply(self, *arguments: Any, **options: Any) -> None:
        self.ask_apply(*arguments, **options)()

    def change(self, how: _core.RuleOptions, values: Flat) -> None:
        """Applies a stateless rule to all weights. It counts neither as a gradient nor as a push."""
        for _, shard, part in self:
            shard.apply(how, whole(part.stop - part.start), (values[part], None, None))()

    def rows(
        self, how: _core.RuleOptions, begins: NDArray[np.int64], width: int, gradient: Flat | None, result: Flat | None
    ) -> None:
        """Applies a rule to rows of ``width`` elements that begin at ``begins``. The arrays are two-dimensional."""
        answers = []
        columns = begins[:, None] + np.arange(width)
        for _, shard, part in self:
            inside = (columns >= part.start) & (columns < part.stop)
            here = inside.any(axis=1)
            first = np.maximum(begins[here], part.start)
            count = np.minimum(begins[here] + width, part.stop) - first
            ranges = np.ascontiguousarray(np.stack([first - part.start, count], axis=1), np.int64)
            values = None if gradient is None else gradient[inside]
            into = None if result is None else np.empty(int(count.sum()), result.dtype)
            if len(ranges):
                answers.append((inside, into, shard.apply(how, ranges, (values, None, into))))
        for inside, into, answer in answers:
            answer()
            if result is not None:
                result[inside] = into

    def settle(self) -> None:
        """Applies gathered gradients if no remaining rank can contribute more."""
        for _, shard, _ in self:
            if self._many:
                shard.settle(self._how)

    def groups(self) -> list[int]:
        """Returns the number of gathered updates of each shard, as known to this rank."""
        return [shard.group() for shard in self._shards]

    def versions(self) -> list[int]:
        """Returns the version of each shard, as known to this rank."""
        return [shard.version() if shard.near else shard.told.version for shard in self._shards]

    def broken(self) -> int:
        return sum(shard.broken() for shard in self._shards)

    def own(self) -> LocalShard | None:
        """Returns this rank's shard."""
        return None if self.mine is None else self._shards[self.mine]

    def bytes_of_mine(self) -> Flat | None:
        """Returns the memory of this rank's shard: weights, the rule's state, counters. No rank may use the shard."""
        return self._memory


def _piece(flat: Flat | None, part: slice) -> Flat | None:
    return None if flat is None else flat[part]


def _ranges(flat: Flat | None, part: slice) -> Ranges:
    return np.empty((0, 2), np.int64) if flat is None else whole(part.stop - part.start)


def _cut(weights: Flat, many: int, ends: Sequence[int]) -> list[slice]:
    size, stripes = weights.itemsize, -(-weights.nbytes // _STRIPE)
    bounds = [min(stripes * i // many * _STRIPE // size, len(weights)) for i in range(many + 1)]
    if ends:
        nearest = np.abs(np.subtract.outer(bounds[1:-1], [0, *ends])).argmin(axis=1) if many > 1 else []
        bounds = [0, *([0, *ends][i] for i in nearest), len(weights)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]
