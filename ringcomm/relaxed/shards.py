"""Weights that the ranks of a host have in common, and how far each rank is."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcomm import _core, shared
from ringcomm.agreement import exchange
from ringcomm.arrays import CoreMemory
from ringcomm.errors import PeerLostError, UnsupportedError
from ringcomm.process_sets import ProcessSet

Flat = NDArray[Any]
_STRIPE = 16384  # bytes: shards are cut at multiples of it
_LOOK = 0.1  # seconds of a sleep, at most
_FINISHED = 2**63 - 1


class Workers:
    """The ranks that use shared weights: their clocks, in the first one's memory. Collective."""

    def __init__(self, name: str, process_set: ProcessSet, on_loss: str = "end") -> None:
        if on_loss not in ("end", "continue"):
            raise ValueError(f'on_loss={on_loss!r}: "end" or "continue"')
        self.name, self.process_set, self._on_loss = name, process_set, on_loss
        self.rank, self.size = process_set.require_rank(), process_set.size()
        self.node = process_set.node
        if self.size > 1 and (self.node is None or self.node.size != self.size):
            raise UnsupportedError(
                f"{name}: the ranks {list(process_set.ranks)} share no memory (several hosts, or shared_memory=off), "
                "which shared weights need. Give process_set= the ranks of one host, or take LocalSGD or DiLoCo"
            )
        self.waited = 0.0  # seconds
        table = _core.Clocks.bytes(self.size)
        self._memory = self.allocate(2 * table + 8 * self.size) if self.rank == 0 else None
        (address,) = self.addresses([0], self._memory, "clocks")
        self.clocks = _core.Clocks(address, self.size, self.node)
        self._meetings, self._met = _core.Clocks(address + table, self.size, self.node), 0
        self._numbers = np.asarray(CoreMemory(address + 2 * table, 8 * self.size, self._memory)).view(np.int64)
        # Keeps the memory, at which others may look a moment longer than this rank, until ringcomm ends here.
        process_set.session().at_end.append(self.leave)
        self.meet()

    def allocate(self, nbytes: int) -> Flat:
        """Zeros, in this rank's arena."""
        memory = shared.flat(self.node, nbytes)
        memory[:] = 0
        return memory

    def addresses(self, owners: Sequence[int], mine: Flat | None, what: str) -> list[int]:
        """Where each owner's memory is in this process. Collective."""
        if self.node is None:
            return [] if mine is None else [mine.ctypes.data]
        offset = -1
        if mine is not None:
            found = self.node.offset_of(mine.ctypes.data, mine.nbytes)
            if found is None:
                raise MemoryError(f"{self.name}: {mine.nbytes} bytes of shared memory are not to be had for {what}")
            offset = found
        rows = exchange([offset], f"{self.name}.{what}", self.process_set)
        offsets = [row[0] for row in rows.values()]
        return [self.node.address(owner, offsets[owner]) for owner in owners]

    def leave(self) -> None:
        """Nobody waits for this rank any more."""
        self.clocks.set(self.rank, None)
        self._meetings.set(self.rank, None)

    def finish(
        self,
        answer: Callable[[Callable[[], bool]], None] | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """This rank makes no more steps. Returns when none does, and all have come. ``answer(until)``: what this rank
        does for others meanwhile; ``settle``: what is left to do once a rank has finished, and once all have."""
        self.clocks.set(self.rank, None)
        settle()
        if answer is not None:
            answer(self.all_finished)
        waited = self.waited
        self.wait(self.all_finished)
        self.waited = waited  # for the end, not for a step
        settle()
        self.meet()

    def wait(self, there: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until it is so. Whatever changes it wakes the clocks."""
        since = time.monotonic()
        while True:
            seen = self.clocks.ticks()
            if there():
                break
            meanwhile()
            self.clocks.sleep(seen, _LOOK)
            self.check()
        self.waited += time.monotonic() - since

    def check(self) -> None:
        """Raises PeerLostError if a worker has died, unless the others are to go on."""
        lost = self.lost()
        if lost and self._on_loss == "end":
            raise PeerLostError(f"{self.name}: rank {lost} died: its process has ended", tuple(lost))

    def lost(self) -> list[int]:
        """Ranks of the world."""
        gone = {*self.clocks.lost(), *self._meetings.lost()}
        return [self.process_set.ranks[one] for one in sorted(gone)]

    def all_finished(self) -> bool:
        return self.clocks.live() == 0

    def count(self, steps: int) -> None:
        """This rank has made so many."""
        self._numbers[self.rank] = steps

    def counted(self, rank: int) -> int:
        """What a rank of the set has counted up to."""
        return int(self._numbers[rank])

    @property
    def updates(self) -> int:
        """Steps of all ranks, of those that died too."""
        return int(self._numbers.sum())

    def meet(self) -> None:
        """Until all that live have come: by shared memory alone, so that the dead hold up nobody."""
        self._met += 1
        self._meetings.set(self.rank, self._met)
        while not self._meetings.wait(-1, self._met, _LOOK):
            self.check()


class Shards:
    """One flat array of weights, cut evenly over the memory of its servers, whatever tensors lie in it. Collective."""

    def __init__(
        self,
        name: str,
        workers: Workers,
        weights: Flat,
        how: _core.RuleOptions,
        many: int,
        of_step: bool,
        servers: list[int],
    ) -> None:
        """``weights``: the same on all ranks. ``many`` > 0: gradients are gathered."""
        self.workers, self._how, self._many = workers, how, many
        size, wide = weights.itemsize, weights.dtype == np.float64
        stripes = -(-weights.nbytes // _STRIPE)
        bounds = [min(stripes * i // len(servers) * _STRIPE // size, len(weights)) for i in range(len(servers) + 1)]
        self._parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        mine = servers.index(workers.rank) if workers.rank in servers else None
        sums = min(many, 1) if not of_step else workers.size  # of a step: added in the order of ranks, whoever is first
        self._memory: Flat | None = None
        if mine is not None:
            count = self._parts[mine].stop - self._parts[mine].start
            self._memory = workers.allocate(_core.Shard.bytes(count, wide, how.states, sums))
        addresses = workers.addresses(servers, self._memory, f"{name}.shards")
        self._shards = [
            _core.Shard(
                address,
                owner,
                part.stop - part.start,
                wide,
                how.states,
                many,
                of_step,
                sums,
                workers.node,
                workers.rank,
            )
            for address, owner, part in zip(addresses, servers, self._parts, strict=True)
        ]
        if mine is not None:
            start = np.ascontiguousarray(weights[self._parts[mine]])
            self._shards[mine].make(start.ctypes.data)
        self.seen = [0] * len(servers)  # of each shard: the version that was pulled last
        self.staleness: Counter[int] = Counter()
        self.dropped = 0
        self.log: list[tuple[int, int, int]] | None = None  # shard, version read, version applied
        # Each rank begins with another shard.
        self._order = [(workers.rank + i) % len(servers) for i in range(len(servers))]
        workers.meet()

    def __iter__(self) -> Any:
        return ((number, self._shards[number], self._parts[number]) for number in self._order)

    def read(self, result: Flat) -> list[int]:
        """Copies the weights out; gives each shard's version."""
        get, versions = _core.RuleOptions("get"), [0] * len(self._shards)
        for number, shard, part in self:
            piece = result[part]
            versions[number] = shard.apply(get, 0, len(piece), 0, 0, piece.ctypes.data)
        return versions

    def pull(self, result: Flat) -> None:
        """As `read`; this rank's next gradient is of these weights."""
        self.seen = self.read(result)

    def apply(
        self,
        gradient: Flat | None,
        result: Flat | None,
        pulled: Flat | None = None,
        scale: Callable[[int], float] | None = None,
        how: _core.RuleOptions | None = None,
    ) -> None:
        """Applies the rule at once. ``result``: the weights afterwards (or, of some rules, the other's). ``scale``: by
        what a gradient of such staleness moves the weights less."""
        how = how or self._how
        for number, shard, part in self:
            stale = max(shard.version() - self.seen[number], 0)
            if scale is not None:
                how.set("scale", 1.0)
                how.set("lr", self.lr * scale(stale))
            addresses = [0 if one is None else one[part].ctypes.data for one in (gradient, pulled, result)]
            before = shard.apply(how, 0, part.stop - part.start, *addresses)
            self.staleness[max(before - self.seen[number], 0)] += 1
            if self.log is not None:
                self.log.append((number, self.seen[number], before))
            if result is not None:
                self.seen[number] = before + 1

    def change(self, how: _core.RuleOptions, values: Flat) -> None:
        """By a rule that keeps nothing: no gradient, and nobody's push."""
        for _, shard, part in self:
            shard.apply(how, 0, part.stop - part.start, values[part].ctypes.data, 0, 0)

    lr = 0.0  # of rules whose step is scaled

    def gather(self, gradient: Flat, clock: int, scale: Callable[[int], float] | None = None) -> None:
        """Hands in a gradient, whose update comes when enough have come; waits while an earlier one is being made."""
        clocks = self.workers.clocks
        for number, shard, part in self:
            stale = max(shard.version() - self.seen[number], 0)
            self.staleness[stale] += 1
            self._how.set("scale", 1.0 if scale is None else scale(stale))
            while True:
                seen = clocks.ticks()
                arrival = shard.gather(self._how, clock, gradient[part].ctypes.data, clocks)
                if arrival != "full":
                    break
                clocks.sleep(seen, 1e-3)
                self.workers.check()
            self.dropped += arrival == "dropped"
            if arrival == "applied":
                clocks.wake()

    def settle(self) -> None:
        """Applies what is gathered where nobody is left to bring more."""
        for _, shard, _ in self:
            if self._many and shard.settle(self._how, self.workers.clocks):
                self.workers.clocks.wake()

    def groups(self) -> list[int]:
        """Updates of gathered gradients, of each shard."""
        return [shard.group() for shard in self._shards]

    def versions(self) -> list[int]:
        return [shard.version() for shard in self._shards]

    def broken(self) -> int:
        return sum(shard.broken() for shard in self._shards)

    def bytes_of_mine(self) -> Flat | None:
        """All of this rank's shard: weights, the rule's state, counters. While nobody uses it."""
        return self._memory
