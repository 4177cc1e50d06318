"""Workers of a store that do not all share memory: each server keeps separate clocks, and serves requests by message.

`Store` uses `SpreadWorkers` in place of `Workers` if `is_spread` returns True.
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
from ringcomm._src.decentralized.shards import LOST, NOTHING, Answer, Arrays, Due, Outcome, Ranges, whole
from ringcomm._src.decentralized.workers import FINISHED, AnyWorkers
from ringcomm._src.named.agreement import exchange
from ringcomm._src.named.process_sets import ProcessSet, Session, global_process_set


def is_spread(process_set: ProcessSet) -> bool:
    """Returns True if some ranks share no memory: there are several hosts, or shared memory is off."""
    return process_set.size() > 1 and (process_set.node is None or process_set.node.size != process_set.size())


def service_of(session: Session) -> _core.StoreService:
    """Returns the service for all stores of a session. The first call is collective over all ranks."""
    if "store" not in session.extras:
        session.extras["store"] = _core.StoreService(session.engine)
    return session.extras["store"]


class RemoteShard:
    """A shard in memory that this rank does not share. Its owner's worker performs the requests."""

    near = False

    def __init__(self, workers: SpreadWorkers, peer: int, number: int, count: int, element: int) -> None:
        self._workers, self._peer, self._number, self._element = workers, peer, number, element
        self._whole = whole(count)
        self.told = Outcome(0, 0)  # result of the last request

    def apply(
        self, how: _core.RuleOptions, ranges: Ranges, arrays: Arrays, clock: int | None = None, due: Due | None = None
    ) -> Answer:
        """Requests LocalShard.apply, without waiting. The arrays must stay unchanged until the answer."""
        return self._ask(how, ranges, arrays, None, clock, due)

    def gather(self, how: _core.RuleOptions, step: int, gradient: Flat, clock: int | None = None) -> Answer:
        return self._ask(how, self._whole, (gradient, None, None), step, clock, None)

    def _ask(self, how: _core.RuleOptions, ranges: Ranges, arrays: Arrays, *when: Any) -> Answer:
        service = self._workers.service
        asked = service.ask(self._peer, self._number, how, ranges.tolist(), self._element, *arrays, *when)

        def answer() -> Outcome:
            since = time.monotonic()
            asked.wait()
            asked.check()
            self._workers.waited += time.monotonic() - since
            self.told = Outcome(asked.version, max(asked.group, self.told.group), asked.arrival)
            return self.told

        return answer

    def version(self) -> int:
        """Returns the current version. Costs one round trip."""
        return self.apply(_core.RuleOptions("get"), self._whole[:0], NOTHING)().version

    def group(self) -> int:
        return self.told.group

    def settle(self, how: _core.RuleOptions) -> None:
        """Does nothing: the owner settles when it learns that this rank has finished."""

    def broken(self) -> int:
        return 0


class SpreadWorkers(AnyWorkers):
    """The counterpart of `Workers` for ranks on any hosts. Collective over all ranks.

    Requests to servers on other hosts carry the worker's clock. If the consistency requires
    waiting, the server delays its answer. Each server's clocks describe the requests that its own
    shards have received.
    """

    spread = True

    def __init__(self, name: str, process_set: ProcessSet, servers: Sequence[int]) -> None:
        if process_set is not global_process_set:
            raise ValueError(f"{name}: between hosts, or without shared memory, a store is of all ranks")
        session, host = process_set.session(), of_this_host(process_set)
        shares = host.node is not None and host.node.size == host.size()
        near = [process_set.ranks.index(rank) for rank in (host.ranks if shares else [session.rank])]
        super().__init__(name, process_set, host.node if shares else None, near)
        self._servers = servers
        self.service, self.threaded = service_of(session), session.worker.threaded
        self._numbers: list[int] = []  # numbers of the objects that this rank serves
        self._served: list[Flat] = []  # memory of these objects
        table = _core.Clocks.bytes(self.size)
        self._memory = self.allocate(2 * table) if self.rank in servers else None
        addresses = dict(zip(servers, self.addresses(servers, self._memory, "clocks"), strict=True))
        reached = {owner: address for owner, address in addresses.items() if address}
        self._clocks = {owner: self._table(address) for owner, address in reached.items()}
        self._meetings = {owner: self._table(address + table) for owner, address in reached.items()}
        self._far = [self.far("meetings", owner, 0, 4) for owner in servers if owner not in reached]
        if self.rank in servers:
            self.serve("meetings", None, self._meetings[self.rank], _core.RuleOptions("get"))
        session.at_end.append(self.leave)
        self.meet()

    def _table(self, address: int) -> _core.Clocks:
        return _core.Clocks(address, self.size, self.node, list(self.near))

    def allocate(self, nbytes: int) -> Flat:
        self._served.append(super().allocate(nbytes))
        return self._served[-1]

    def far(self, what: str, owner: int, count: int, element: int) -> RemoteShard:
        return RemoteShard(self, self.process_set.ranks[owner], self._number(what), count, element)

    def serve(self, what: str, shard: _core.Shard | None, clocks: _core.Clocks, how: _core.RuleOptions) -> None:
        """Serves a shard to ranks that request it by the name ``what``."""
        self._numbers.append(self._number(what))
        self.service.serve(self._numbers[-1], shard, clocks, self.process_set.ranks, how)

    def _number(self, what: str) -> int:
        text = f"{self.name}.{what}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def clocks_at(self, owner: int) -> _core.Clocks:
        return self._clocks[owner]

    def advance(self, clock: int | None) -> None:
        """Advances this rank's clock on local servers. Remote servers receive it with the next request."""
        for clocks in self._clocks.values():
            clocks.set(self.rank, clock)

    def check(self) -> None:
        """Raises PeerLostError if a rank has died."""
        if lost := self.session.engine.lost():
            raise PeerLostError(f"{self.name}: rank {lost} died, or was lost", tuple(lost))

    def lost(self) -> list[int]:
        return list(self.session.engine.lost())

    def meet(self) -> None:
        """Blocks until all ranks have called it."""
        exchange([], f"{self.name}.meet", self.process_set)

    def part(self) -> None:
        """Ends this rank's use of all servers. Returns when no rank needs the memory that this rank serves."""
        get, nothing = _core.RuleOptions("get"), whole(0)[:0]
        for far in self._far:
            far.apply(get, nothing, NOTHING, FINISHED)  # no wait: a server leaves once all ranks have sent it
        for meetings in self._meetings.values():
            meetings.set(self.rank, None)
        if self.rank in self._meetings and self.rank in self._servers:
            mine = self._meetings[self.rank]
            self.wait(lambda: mine.wait(-1, LOST, 0.0), mine)
        self.stop()

    def stop(self) -> None:
        for number in self._numbers:
            self.service.forget(number)
        self._numbers, self._served = [], []

    def leave(self) -> None:
        """Sets this rank's clocks to infinity, so that no local rank waits for it. Remote ranks get a notification."""
        self.advance(None)
        for meetings in self._meetings.values():
            meetings.set(self.rank, None)
