"""Workers of a store that do not all share memory: each server keeps clocks of its own, and is asked by messages."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcomm import _core, shared
from ringcomm.agreement import exchange
from ringcomm.errors import PeerLostError
from ringcomm.process_sets import ProcessSet, Session, global_process_set
from ringcomm.relaxed.periodic import of_this_host
from ringcomm.relaxed.replicas import Flat
from ringcomm.relaxed.shards import LOST, Answer, Due, Outcome, whole
from ringcomm.relaxed.workers import FINISHED

_LOOK = 0.1  # seconds of a sleep, at most
_TURN = 0.0005  # the same, of a rank whose worker has no thread


def is_spread(process_set: ProcessSet) -> bool:
    """Whether some of its ranks share no memory: there are several hosts, or it is off."""
    return process_set.size() > 1 and (process_set.node is None or process_set.node.size != process_set.size())


def service_of(session: Session) -> _core.StoreService:
    """Of all stores of a session. The first call is collective over all ranks."""
    if "store" not in session.extras:
        session.extras["store"] = _core.StoreService(session.engine)
    return session.extras["store"]


class Far:
    """A shard in memory that this rank does not share: its owner's worker does what is asked for."""

    near = False

    def __init__(self, workers: SpreadWorkers, peer: int, number: int, count: int, element: int) -> None:
        self._workers, self._peer, self._number, self._element = workers, peer, number, element
        self._whole = whole(count)
        self.told = Outcome(0, 0)  # last

    def apply(
        self,
        how: _core.RuleOptions,
        ranges: NDArray[np.int64],
        gradient: Flat | None,
        pulled: Flat | None,
        result: Flat | None,
        clock: int | None = None,
        due: Due | None = None,
    ) -> Answer:
        """As Near.apply; does not wait. The arrays are let alone until it has been waited for."""
        return self._ask(how, ranges, gradient, pulled, result, None, clock, due)

    def gather(self, how: _core.RuleOptions, step: int, gradient: Flat, clock: int | None = None) -> Answer:
        return self._ask(how, self._whole, gradient, None, None, step, clock, None)

    def _ask(self, how: _core.RuleOptions, ranges: NDArray[np.int64], *more: Any) -> Answer:
        service = self._workers.service
        asked = service.ask(self._peer, self._number, how, ranges.tolist(), self._element, *more)

        def answer() -> Outcome:
            since = time.monotonic()
            asked.wait()
            asked.check()
            self._workers.waited += time.monotonic() - since
            self.told = Outcome(asked.version, max(asked.group, self.told.group), asked.arrival)
            return self.told

        return answer

    def version(self) -> int:
        """As it is now: a question and an answer."""
        return self._ask(_core.RuleOptions("get"), self._whole[:0], None, None, None, None, None, None)().version

    def group(self) -> int:
        return self.told.group

    def settle(self, how: _core.RuleOptions) -> None:
        """Its owner does so when it hears that this rank has finished."""

    def broken(self) -> int:
        return 0


class SpreadWorkers:
    """As `Workers`, of ranks on any hosts. Collective over all ranks. Between hosts a clock rides on what is asked of a
    server, whose answers come late where the consistency says so: each server's clocks say what *its* shards have seen.
    """

    spread = True

    def __init__(self, name: str, process_set: ProcessSet, servers: Sequence[int]) -> None:
        if process_set is not global_process_set:
            raise ValueError(f"{name}: between hosts, or without shared memory, a store is of all ranks")
        self.name, self.process_set, self._servers = name, process_set, servers
        self.rank, self.size = process_set.require_rank(), process_set.size()
        self._session = process_set.session()
        self.service, self.threaded = service_of(self._session), self._session.worker.threaded
        host = of_this_host(process_set)
        shares = host.node is not None and host.node.size == host.size()
        self.node = host.node if shares else None
        ranks = host.ranks if shares else [self._session.rank]
        self._host = [process_set.ranks.index(rank) for rank in ranks]
        self.node_rank = self._host.index(self.rank)
        self.waited = 0.0  # seconds
        self._numbers: list[int] = []  # of what is served here
        self._served: list[Flat] = []  # its memory
        table = _core.Clocks.bytes(self.size)
        self._memory = self.allocate(2 * table) if self.rank in servers else None
        addresses = dict(zip(servers, self.addresses(servers, self._memory, "clocks"), strict=True))
        near = {owner: address for owner, address in addresses.items() if address}
        self._clocks = {owner: self._table(address) for owner, address in near.items()}
        self._meetings = {owner: self._table(address + table) for owner, address in near.items()}
        get = _core.RuleOptions("get")
        self._far = [self.far("meetings", owner, 0, 4, get) for owner in servers if owner not in near]
        if self.rank in servers:
            self.serve("meetings", None, self._meetings[self.rank], get)
        self._session.at_end.append(self.leave)
        self.meet()

    def _table(self, address: int) -> _core.Clocks:
        return _core.Clocks(address, self.size, self.node, self._host)

    def allocate(self, nbytes: int) -> Flat:
        """Zeros, in this rank's arena if others of its host are to reach them."""
        memory = shared.flat(self.node, nbytes)
        memory[:] = 0
        self._served.append(memory)
        return memory

    def addresses(self, owners: Sequence[int], mine: Flat | None, what: str) -> list[int]:
        """Where each owner's memory is in this process; 0: out of reach. Collective."""
        offset = None
        if mine is not None and self.node is not None:
            offset = self.node.offset_of(mine.ctypes.data, mine.nbytes)
            if offset is None:
                raise MemoryError(f"{self.name}: {mine.nbytes} bytes of shared memory are not to be had for {what}")
        rows = exchange([-1 if offset is None else offset], f"{self.name}.{what}", self.process_set)
        offsets = [row[0] for row in rows.values()]
        return [self._address(owner, offsets[owner], mine) for owner in owners]

    def _address(self, owner: int, offset: int, mine: Flat | None) -> int:
        if owner == self.rank:
            assert mine is not None
            return mine.ctypes.data
        if owner not in self._host or self.node is None:
            return 0
        return self.node.address(self._host.index(owner), offset)

    def far(self, what: str, owner: int, count: int, element: int, how: _core.RuleOptions) -> Far:
        return Far(self, self.process_set.ranks[owner], self._number(what), count, element)

    def serve(self, what: str, shard: _core.Shard | None, clocks: _core.Clocks, how: _core.RuleOptions) -> None:
        """From now on, to ranks that ask for it by this name."""
        self._numbers.append(self._number(what))
        self.service.serve(self._numbers[-1], shard, clocks, self.process_set.ranks, how)

    def _number(self, what: str) -> int:
        text = f"{self.name}.{what}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def clocks_at(self, owner: int) -> _core.Clocks:
        return self._clocks[owner]

    def advance(self, clock: int | None) -> None:
        """To near servers. Far ones are told with what is asked of them."""
        for clocks in self._clocks.values():
            clocks.set(self.rank, clock)

    def wait(self, there: Callable[[], bool], meanwhile: Callable[[], None], clocks: _core.Clocks) -> None:
        """Until it is so. Whatever changes it wakes the clocks."""
        since = time.monotonic()
        while True:
            seen = clocks.ticks()
            if there():
                break
            meanwhile()
            self.sleep(clocks, seen)
            self.check()
        self.waited += time.monotonic() - since

    def sleep(self, clocks: _core.Clocks, seen: int) -> None:
        """Until somebody wakes these clocks, or a moment; without a thread, the worker has turns meanwhile."""
        if self.threaded:
            clocks.sleep(seen, _LOOK)
        else:
            self._session.worker.help()
            clocks.sleep(seen, _TURN)

    def check(self) -> None:
        """Raises PeerLostError if a rank has died."""
        if lost := self._session.engine.lost():
            raise PeerLostError(f"{self.name}: rank {lost} died, or was lost", tuple(lost))

    def lost(self) -> list[int]:
        return list(self._session.engine.lost())

    def meet(self) -> None:
        """Until all have come."""
        exchange([], f"{self.name}.meet", self.process_set)

    def part(self) -> None:
        """This rank needs no server any more. Returns when nobody needs what is served here."""
        get, nothing = _core.RuleOptions("get"), whole(0)[:0]
        for far in self._far:
            far.apply(get, nothing, None, None, None, FINISHED)  # unanswered: who has heard it of all may leave
        for meetings in self._meetings.values():
            meetings.set(self.rank, None)
        if self.rank in self._meetings and self.rank in self._servers:
            mine = self._meetings[self.rank]
            self.wait(lambda: mine.wait(-1, LOST, 0.0), lambda: None, mine)
        self.stop()

    def stop(self) -> None:
        for number in self._numbers:
            self.service.forget(number)
        self._numbers, self._served = [], []

    def leave(self) -> None:
        """Nobody near waits for this rank any more; far ones hear that it has left."""
        self.advance(None)
        for meetings in self._meetings.values():
            meetings.set(self.rank, None)
