"""Workers of a store that do not all share memory.

Each server has a table of all workers' progress (its clocks), and answers requests by message.
`Store` uses `DistributedWorkers` in place of `Workers` if `is_distributed` returns True.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

from ringcomm._src.base.errors import PeerLostError
from ringcomm._src.core import _core
from ringcomm._src.decentralized.periodic import of_this_host
from ringcomm._src.decentralized.replicas import Flat
from ringcomm._src.decentralized.shards import LOST, NOTHING, Arrays, Due, Outcome, Ranges, Reply, full_range
from ringcomm._src.decentralized.workers import FINISHED, AnyWorkers
from ringcomm._src.named.agreement import exchange
from ringcomm._src.named.process_sets import ProcessSet, Session, global_process_set


def is_distributed(process_set: ProcessSet) -> bool:
    """Returns True if some ranks share no memory: several hosts, or shared memory is off."""
    return process_set.size() > 1 and (process_set.node is None or process_set.node.size != process_set.size())


def service_of(session: Session) -> _core.StoreService:
    """Returns the session's service for all stores. The first call is collective over all ranks."""
    if "store" not in session.extras:
        session.extras["store"] = _core.StoreService(session.engine)
    return session.extras["store"]


class RemoteShard:
    """A shard in memory that this rank does not share. Its owner's worker performs the requests."""

    is_local = False

    def __init__(self, workers: DistributedWorkers, peer: int, number: int, count: int, element: int) -> None:
        self._workers, self._peer, self._number, self._element = workers, peer, number, element
        self._full_range = full_range(count)
        self.last_outcome = Outcome(0, 0)  # result of the last request

    def apply(
        self, rule: _core.RuleOptions, ranges: Ranges, arrays: Arrays, clock: int | None = None, due: Due | None = None
    ) -> Reply:
        """Requests LocalShard.apply from the owner. The arrays must not change until the reply."""
        return self._request(rule, ranges, arrays, None, clock, due)

    def gather(self, rule: _core.RuleOptions, step: int, gradient: Flat, clock: int | None = None) -> Reply:
        return self._request(rule, self._full_range, (gradient, None, None), step, clock, None)

    def _request(self, rule: _core.RuleOptions, ranges: Ranges, arrays: Arrays, *when: Any) -> Reply:
        service = self._workers.service
        request = service.post(self._peer, self._number, rule, ranges.tolist(), self._element, *arrays, *when)

        def reply() -> Outcome:
            since = time.monotonic()
            request.wait()
            request.check()
            self._workers.waited += time.monotonic() - since
            self.last_outcome = Outcome(request.version, max(request.group, self.last_outcome.group), request.arrival)
            return self.last_outcome

        return reply

    def version(self) -> int:
        """Returns the current version. Costs one round trip."""
        return self.apply(_core.RuleOptions("get"), self._full_range[:0], NOTHING)().version

    def group(self) -> int:
        return self.last_outcome.group

    def apply_gathered(self, rule: _core.RuleOptions) -> None:
        """Does nothing: the owner applies gradients when it learns that this rank has finished."""

    def broken(self) -> int:
        return 0


class DistributedWorkers(AnyWorkers):
    """The counterpart of `Workers` for ranks on any hosts. Collective over all ranks.

    Requests to servers on other hosts carry the worker's clock. If the consistency requires
    waiting, the server delays its answer. Each server's clocks show the workers'
    progress in the requests that this server has received.
    """

    distributed = True

    def __init__(self, name: str, process_set: ProcessSet, servers: Sequence[int]) -> None:
        if process_set is not global_process_set:
            raise ValueError(f"{name}: between hosts, or without shared memory, process_set must contain all ranks")
        session, host = process_set.session(), of_this_host(process_set)
        is_shared = host.node is not None and host.node.size == host.size()
        node_ranks = [process_set.ranks.index(rank) for rank in (host.ranks if is_shared else [session.rank])]
        super().__init__(name, process_set, host.node if is_shared else None, node_ranks)
        self._servers = servers
        self.service, self.threaded = service_of(session), session.worker.threaded
        self._numbers: list[int] = []  # numbers of the objects that this rank serves
        self._served: list[Flat] = []  # memory of these objects
        table = _core.Clocks.bytes(self.size)
        self._memory = self.allocate(2 * table) if self.rank in servers else None
        addresses = dict(zip(servers, self.addresses(servers, self._memory, "clocks"), strict=True))
        accessible = {owner: address for owner, address in addresses.items() if address}
        self._clocks = {owner: self._table(address) for owner, address in accessible.items()}
        self._barrier_clocks = {owner: self._table(address + table) for owner, address in accessible.items()}
        self._remote_barriers = [
            self.remote_shard("meetings", owner, 0, 4) for owner in servers if owner not in accessible
        ]
        if self.rank in servers:
            self.serve("meetings", None, self._barrier_clocks[self.rank], _core.RuleOptions("get"))
        session.at_end.append(self.leave)
        self.barrier()

    def _table(self, address: int) -> _core.Clocks:
        return _core.Clocks(address, self.size, self.node, list(self.node_ranks))

    def allocate(self, nbytes: int) -> Flat:
        self._served.append(super().allocate(nbytes))
        return self._served[-1]

    def remote_shard(self, what: str, owner: int, count: int, element: int) -> RemoteShard:
        return RemoteShard(self, self.process_set.ranks[owner], self._number(what), count, element)

    def serve(self, what: str, shard: _core.Shard | None, clocks: _core.Clocks, rule: _core.RuleOptions) -> None:
        """Serves a shard to ranks that request it by the name ``what``."""
        self._numbers.append(self._number(what))
        self.service.serve(self._numbers[-1], shard, clocks, self.process_set.ranks, rule)

    def _number(self, what: str) -> int:
        text = f"{self.name}.{what}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def clocks_at(self, owner: int) -> _core.Clocks:
        return self._clocks[owner]

    def advance(self, clock: int | None) -> None:
        """Advances this rank's clock on local servers. The next request sends it to the others."""
        for clocks in self._clocks.values():
            clocks.set(self.rank, clock)

    def check(self) -> None:
        """Raises PeerLostError if a rank has died."""
        if lost := self.session.engine.lost():
            raise PeerLostError(f"{self.name}: ranks {lost} died, or the connection to them was lost", tuple(lost))

    def lost(self) -> list[int]:
        return list(self.session.engine.lost())

    def barrier(self) -> None:
        """Blocks until all ranks have called it."""
        exchange([], f"{self.name}.meet", self.process_set)

    def detach(self) -> None:
        """Ends this rank's use of all servers. Returns when no rank needs this rank's memory."""
        get, no_ranges = _core.RuleOptions("get"), full_range(0)[:0]
        for shard in self._remote_barriers:
            # Does not wait for the reply: a server may leave when all ranks have sent FINISHED.
            shard.apply(get, no_ranges, NOTHING, FINISHED)
        for clocks in self._barrier_clocks.values():
            clocks.set(self.rank, None)
        if self.rank in self._barrier_clocks and self.rank in self._servers:
            own_clocks = self._barrier_clocks[self.rank]
            self.wait(lambda: own_clocks.wait(-1, LOST, 0.0), own_clocks)
        self.stop()

    def stop(self) -> None:
        for number in self._numbers:
            self.service.forget(number)
        self._numbers, self._served = [], []

    def leave(self) -> None:
        """Sets this rank's clocks on local servers to infinity, so that no local rank waits."""
        self.advance(None)
        for clocks in self._barrier_clocks.values():
            clocks.set(self.rank, None)
