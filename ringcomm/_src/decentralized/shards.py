"""Weights that are distributed over the memory of their servers, on this host or other hosts.

`LocalShard` works in shared memory; `RemoteShard` (distributed_workers.py) sends requests to the
owner. `Shards` splits one flat array over both kinds. `Store` and `ElasticPulls` use it.
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
AT_ANY_TIME = -(2**63)  # a minimum that all clocks have always reached
_STRIPE = 16384  # bytes; shards are cut at multiples of it


class Outcome(NamedTuple):
    """The result of a request to a shard.

    ``version``: the version before the request; ``group``: number of gathered updates, which
    combine several gradients; ``arrival``: what happened to a gradient ("applied", "gathered",
    "dropped").
    """

    version: int
    group: int
    arrival: str = "applied"


Reply = Callable[[], Outcome]  # waits for the result
Ranges = NDArray[np.int64]  # rows of (first element, number of elements)
Arrays = tuple[Flat | None, Flat | None, Flat | None]  # gradient, weights that were pulled, result
NOTHING: Arrays = (None, None, None)


def full_range(count: int) -> Ranges:
    """Returns the range that covers a complete shard."""
    return np.array([[0, count]], np.int64)


class LocalShard:
    """A shard in memory that this rank shares. This rank performs the operations itself."""

    is_local = True

    def __init__(self, workers: Workers, shard: _core.Shard, clocks: _core.Clocks, rule: _core.RuleOptions) -> None:
        self._workers, self.shard, self.clocks, self._rule = workers, shard, clocks, rule
        self.version, self.group, self.broken = shard.version, shard.group, shard.broken

    def apply(
        self, rule: _core.RuleOptions, ranges: Ranges, arrays: Arrays, clock: int | None = None, due: Due | None = None
    ) -> Reply:
        """Applies a rule to ranges of the shard. The arrays hold the elements of all ranges.

        If ``due`` is given, waits first until it is reached.
        """
        if due is not None:
            self._workers.wait(lambda: self._is_due(*due), self.clocks, lambda: self.apply_gathered(self._rule))
        addresses = [0 if array is None else array.ctypes.data for array in arrays]
        version = self.shard.apply_ranges(rule, ranges.ctypes.data, len(ranges), *addresses)
        return lambda: Outcome(version, 0)

    def _is_due(self, clock: int, group: int) -> bool:
        if not self.clocks.wait(-1, clock, 0.0) or (group and self.shard.group() < group):
            return False
        return clock < LOST or not self.shard.gathers_now()

    def gather(self, rule: _core.RuleOptions, step: int, gradient: Flat, clock: int | None = None) -> Reply:
        """Adds a gradient to the next gathered update. Waits while an update is in progress."""
        while True:
            ticks_seen = self.clocks.ticks()
            arrival = self.shard.gather(rule, step, gradient.ctypes.data, self.clocks)
            if arrival != "full":
                break
            self._workers.sleep(self.clocks, ticks_seen)
            self._workers.check()
        self.clocks.wake()
        return lambda: Outcome(self.shard.version(), 0, arrival)

    def apply_gathered(self, rule: _core.RuleOptions) -> None:
        if self.shard.apply_if_complete(rule, self.clocks):
            self.clocks.wake()


class Shards:
    """One flat array of weights, divided evenly over its servers. Collective."""

    def __init__(
        self,
        name: str,
        workers: Any,
        weights: Flat,
        rule: _core.RuleOptions,
        gather_count: int,
        of_step: bool,
        servers: list[int],
        ends: Sequence[int] = (),
    ) -> None:
        """``weights``: equal on all ranks. ``gather_count`` > 0: gradients are gathered.

        ``ends``: indices at which the array may be cut; empty: any multiple of 16 KB.
        """
        self.workers, self._rule, self._gather_count = workers, rule, gather_count
        self._wide = weights.dtype == np.float64
        self.parts = _cut(weights, len(servers), ends)
        self.own_index = servers.index(workers.rank) if workers.rank in servers else None
        # Gradients of a step have separate buffers, so that they are added in the order of ranks.
        self._sums = workers.size if of_step and gather_count else min(gather_count, 1)
        self._memory: Flat | None = None
        if self.own_index is not None:
            part = self.parts[self.own_index]
            count = part.stop - part.start
            self._memory = workers.allocate(_core.Shard.bytes(count, self._wide, rule.states, self._sums))
        addresses = workers.addresses(servers, self._memory, f"{name}.shards")
        self._shards = [
            self._shard(f"{name}.shards", address, owner, part, of_step)
            for address, owner, part in zip(addresses, servers, self.parts, strict=True)
        ]
        if self.own_index is not None:
            start = np.ascontiguousarray(weights[self.parts[self.own_index]])
            self._shards[self.own_index].shard.make(start.ctypes.data)
        self.pulled_versions = [0] * len(servers)  # version of each shard that was pulled last
        self.staleness: Counter[int] = Counter()
        self.dropped = 0
        self.log: list[tuple[int, int, int]] | None = None  # (shard, version read, version applied) per push
        # Each rank begins with a different shard, to spread the load. Remote shards get their
        # requests first, so that their owners work while this rank uses local shards.
        order = [(workers.rank + i) % len(servers) for i in range(len(servers))]
        self._order = sorted(order, key=lambda number: self._shards[number].is_local)
        workers.barrier()

    def _shard(self, name: str, address: int, owner: int, part: slice, of_step: bool) -> Any:
        workers, count = self.workers, part.stop - part.start
        if not address:
            return workers.remote_shard(name, owner, count, 8 if self._wide else 4)
        shard = _core.Shard(
            address,
            owner,
            count,
            self._wide,
            self._rule.states,
            self._gather_count,
            of_step,
            self._sums,
            workers.rank if self._sums > 1 else 0,
            workers.node,
            workers.node_rank,
        )
        clocks = workers.clocks_at(owner)
        if workers.distributed and owner == workers.rank:
            workers.serve(name, shard, clocks, self._rule)
        return LocalShard(workers, shard, clocks, self._rule)

    def __iter__(self) -> Iterator[tuple[int, Any, slice]]:
        return ((number, self._shards[number], self.parts[number]) for number in self._order)

    # ---- requests: remote shards work in the background; call the result to wait for them ----------------------------
    def request_pull(
        self, result: Flat | None, clock: int | None = None, due: Due | None = None, counts: bool = True
    ) -> Callable[[], None]:
        """Copies the weights out. With ``result`` None, only sends the clock to remote shards.

        ``counts``: this rank's next gradient is computed from these weights.
        """
        get = _core.RuleOptions("get")
        replies = [
            (number, shard.apply(get, _ranges(result, part), (None, None, _piece(result, part)), clock, due))
            for number, shard, part in self
            if result is not None or not shard.is_local
        ]

        def collect() -> None:
            for number, reply in replies:
                version = reply().version
                if counts and result is not None:
                    self.pulled_versions[number] = version

        return collect

    def request_apply(
        self,
        gradient: Flat | None,
        result: Flat | None,
        pulled: Flat | None = None,
        scale: Callable[[int], float] | None = None,
        rule: _core.RuleOptions | None = None,
        clock: int | None = None,
    ) -> Callable[[], None]:
        """Applies the rule immediately.

        ``result``: receives the new weights (for the elastic rule: those of the replica).
        ``scale``: factor of the learning rate as a function of the gradient's staleness.
        """
        rule = rule or self._rule
        replies = []
        for number, shard, part in self:
            if scale is not None:
                rule.set("scale", 1.0)
                rule.set("lr", self.lr * scale(max(shard.version() - self.pulled_versions[number], 0)))
            arrays = _piece(gradient, part), _piece(pulled, part), _piece(result, part)
            replies.append(
                (
                    number,
                    self.pulled_versions[number],
                    shard.apply(rule, full_range(part.stop - part.start), arrays, clock),
                )
            )

        def collect() -> None:
            for number, pulled_version, reply in replies:
                before = reply().version
                self.staleness[max(before - pulled_version, 0)] += 1
                if self.log is not None:
                    self.log.append((number, pulled_version, before))
                if result is not None:
                    self.pulled_versions[number] = before + 1

        return collect

    lr = 0.0  # learning rate, for rules with a `scale`

    def request_gather(
        self, gradient: Flat, step: int, scale: Callable[[int], float] | None = None, clock: int | None = None
    ) -> Callable[[], None]:
        """Adds a gradient to the next gathered update, applied when it has enough gradients."""
        replies = []
        for number, shard, part in self:
            pulled_version = self.pulled_versions[number]
            self._rule.set("scale", 1.0 if scale is None else scale(max(shard.version() - pulled_version, 0)))
            replies.append((pulled_version, shard.gather(self._rule, step, gradient[part], clock)))

        def collect() -> None:
            for pulled_version, reply in replies:
                outcome = reply()
                self.staleness[max(outcome.version - pulled_version, 0)] += 1
                self.dropped += outcome.arrival == "dropped"

        return collect

    # ---- blocking forms ----------------------------------------------------------------------------------------------
    def read(self, result: Flat) -> None:
        """Copies the weights out."""
        self.request_pull(result, counts=False)()

    def pull(self, result: Flat) -> None:
        """Copies the weights out, as the weights from which the next gradient is computed."""
        self.request_pull(result)()

    def apply(self, *arguments: Any, **options: Any) -> None:
        self.request_apply(*arguments, **options)()

    def change(self, rule: _core.RuleOptions, values: Flat) -> None:
        """Applies a stateless rule to all weights. This counts neither as gradient nor as push."""
        for _, shard, part in self:
            shard.apply(rule, full_range(part.stop - part.start), (values[part], None, None))()

    def rows(
        self, rule: _core.RuleOptions, begins: NDArray[np.int64], width: int, gradient: Flat | None, result: Flat | None
    ) -> None:
        """Applies a rule to rows of ``width`` elements that start at ``begins``. Arrays are 2-D."""
        replies = []
        columns = begins[:, None] + np.arange(width)
        for _, shard, part in self:
            inside = (columns >= part.start) & (columns < part.stop)
            touched = inside.any(axis=1)
            first = np.maximum(begins[touched], part.start)
            count = np.minimum(begins[touched] + width, part.stop) - first
            ranges = np.ascontiguousarray(np.stack([first - part.start, count], axis=1), np.int64)
            values = None if gradient is None else gradient[inside]
            output = None if result is None else np.empty(int(count.sum()), result.dtype)
            if len(ranges):
                replies.append((inside, output, shard.apply(rule, ranges, (values, None, output))))
        for inside, output, reply in replies:
            reply()
            if result is not None:
                result[inside] = output

    def apply_gathered(self) -> None:
        """Applies gathered gradients if no remaining rank can contribute more."""
        for _, shard, _ in self:
            if self._gather_count:
                shard.apply_gathered(self._rule)

    def groups(self) -> list[int]:
        """Returns the number of gathered updates of each shard, as known to this rank."""
        return [shard.group() for shard in self._shards]

    def versions(self) -> list[int]:
        """Returns the version of each shard, as known to this rank."""
        return [shard.version() if shard.is_local else shard.last_outcome.version for shard in self._shards]

    def broken(self) -> int:
        return sum(shard.broken() for shard in self._shards)

    def own_shard(self) -> LocalShard | None:
        """Returns this rank's shard."""
        return None if self.own_index is None else self._shards[self.own_index]

    def own_bytes(self) -> Flat | None:
        """Returns the memory of this rank's shard. The caller ensures that no rank uses it.

        It consists of the weights, the rule's state and counters.
        """
        return self._memory


def _piece(flat: Flat | None, part: slice) -> Flat | None:
    return None if flat is None else flat[part]


def _ranges(flat: Flat | None, part: slice) -> Ranges:
    return np.empty((0, 2), np.int64) if flat is None else full_range(part.stop - part.start)


def _cut(weights: Flat, count: int, ends: Sequence[int]) -> list[slice]:
    size, stripes = weights.itemsize, -(-weights.nbytes // _STRIPE)
    bounds = [min(stripes * i // count * _STRIPE // size, len(weights)) for i in range(count + 1)]
    if ends:
        nearest = np.abs(np.subtract.outer(bounds[1:-1], [0, *ends])).argmin(axis=1) if count > 1 else []
        bounds = [0, *([0, *ends][i] for i in nearest), len(weights)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]
