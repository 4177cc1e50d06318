"""The session, which ``init`` makes and ``shutdown`` ends.

It owns the communicator of all ranks, the engine that runs named operations, and the process sets
in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ringcomm._src.base import affinity
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.config import config as configuration
from ringcomm._src.core import _core
from ringcomm._src.named.agreement import agree_on_sets, exchange_sets, require_equal_sets
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.observe import accounts, timeline
from ringcomm._src.platform.links import Link
from ringcomm._src.platform.mpi_link import MpiLink, processes
from ringcomm._src.process import exits

logger = logging.getLogger("ringcomm")

ENGINE_SLOT = 2  # slot of the world's arenas, after the two slots of the communicator
PLAN_SLOTS = range(ENGINE_SLOT + 1, _core.SLOTS)
SET_SLOT, SET_PLAN_SLOTS = 0, range(1, _core.SLOTS)  # slots of a process set's private arenas

before_end: list[Callable[[], None]] = []  # called before any session ends, while peers are still reachable
ended_links: list[MpiLink] = []  # links of earlier sessions, freed when all ranks have called a later init()


class Session:
    """The state between ``init`` and ``shutdown``.

    ``comm`` runs ordered calls between all ranks, ``engine`` named operations.
    """

    def __init__(self, link: Link, config: configuration.Config) -> None:
        self.link = link
        self.comm = Communicator(link, config)
        self.config = self.comm.config
        self.host_of, self.own_core = link.topology.host_of, self.comm._own_core
        self.rank, self.size = link.rank, link.size
        self.worker = link.worker
        self.custom_algorithms = self.comm.custom_algorithms
        self.ledger = accounts.Ledger(1, self.config.stats)
        if self.config.stats:
            accounts.report_at_end()
        engine_config = self.config.channel(self.host_of, self.custom_algorithms.table, self.ledger.accounts[0])
        self.engine = _core.Engine(link.worker, link.another_transport(), engine_config)
        self.engine.watch(processes, link.rank_of)
        self.sets: list[ProcessSet] = []
        self.has_its_sets = False  # False if init() raised for its process sets
        self.at_end: list[Callable[[], None]] = []
        self.extras: dict[str, Any] = {}
        all_ranks = list(range(self.size))
        set_id = self.engine.add_set(all_ranks, self.comm._node, ENGINE_SLOT)
        self._attach(global_process_set, set_id, all_ranks, self.comm._node, PLAN_SLOTS)
        exits.watch(self)
        if self.config.thread_affinity:
            affinity.pin(self.config.thread_affinity, self.comm.local_rank, self.comm.local_size)

    def _attach(
        self, process_set: ProcessSet, set_id: int, ranks: Sequence[int], node: _core.Node | None, slots: range
    ) -> None:
        process_set.attach(self, set_id, ranks, node, slots)
        self.sets.append(process_set)

    def add_set(self, process_set: ProcessSet) -> ProcessSet:
        ranks = self._ranks_of(process_set)
        agree_on_sets("add_process_set", ranks)
        return self._add(process_set, ranks)

    def add_sets(self, process_sets: Sequence[ProcessSet]) -> None:
        """Adds several sets, or none of them if one is invalid.

        Sets made from a communicator may differ between ranks. If so, the sets of all ranks are
        added, and each rank's object becomes the set of that rank's communicator.
        """
        agree_on_sets("init", [len(process_sets)])
        additions: list[tuple[ProcessSet, list[int]]] = []
        for process_set in process_sets:
            own_ranks = self._ranks_of(process_set)
            rows = exchange_sets("init", [process_set.from_communicator, *own_ranks])
            if not all(row[0] for row in rows.values()):
                require_equal_sets("init", rows)
            for ranks in dict.fromkeys(tuple(rows[rank][1:]) for rank in sorted(rows)):
                others = (*(existing.ranks for existing in self.sets), *(new_ranks for _, new_ranks in additions))
                self._require_new(list(ranks), others)
                additions.append((process_set if list(ranks) == own_ranks else ProcessSet(ranks), list(ranks)))
        for process_set, set_ranks in additions:
            self._add(process_set, set_ranks)
        self.has_its_sets = True

    def _ranks_of(self, process_set: ProcessSet) -> list[int]:
        if process_set.process_set_id is not None:
            raise ValueError(f"{process_set!r} is already in use")
        return process_set.world_ranks(self)

    def _require_new(self, ranks: list[int], others: Iterable[list[int]]) -> None:
        if not ranks or ranks[0] < 0 or ranks[-1] >= self.size:
            raise ValueError(f"a process set consists of ranks between 0 and {self.size - 1}, not {ranks}")
        if ranks in others:
            raise ValueError(f"a process set of ranks {ranks} already exists: use that set")

    def _add(self, process_set: ProcessSet, ranks: list[int]) -> ProcessSet:
        self._require_new(ranks, (existing.ranks for existing in self.sets))
        if self.config.algorithm:
            rank = ranks.index(self.rank) if self.rank in ranks else None
            self.custom_algorithms.agree_on_default(self.config.algorithm, rank, len(ranks), self._digests)
        node = self._node_for(ranks)
        set_id = self.engine.add_set(ranks, node, SET_SLOT)
        self._attach(process_set, set_id, ranks, node, SET_PLAN_SLOTS)
        return process_set

    def _digests(self, digest: bytes) -> list[bytes]:
        rows = exchange_sets("add_process_set", np.frombuffer(digest, np.int64).tolist())
        return [np.array(rows[rank], np.int64).tobytes() for rank in sorted(rows)]

    def _node_for(self, ranks: list[int]) -> _core.Node | None:
        """Maps arenas for the ranks of a process set. Returns None if they cannot share memory."""
        if len(ranks) == 1 or self.config.shared_memory == "off":
            return None
        node, why = self.link.share_memory(ranks)
        if node is None and self.rank in ranks:
            logger.debug("process set %s sends messages, because its ranks cannot share memory: %s", ranks, why)
        return node

    def remove_set(self, process_set: ProcessSet) -> None:
        agree_on_sets("remove_process_set", [process_set.process_set_id or 0])
        assert process_set.process_set_id is not None
        self.engine.remove_set(process_set.process_set_id)
        self.sets.remove(process_set)
        process_set.detach()

    def translate(self, comm: Any) -> list[int]:
        """Returns the world's ranks of an mpi4py communicator."""
        if not isinstance(self.link, MpiLink):
            raise ValueError("a process set that is made from a communicator needs MPI, which this job does not use")
        return self.link.ranks_of(comm)

    def end(self) -> None:
        self._leave("ringcomm has been shut down")
        exits.unwatch(self)
        exits.unwatch(self.comm)
        if isinstance(self.link, MpiLink):
            self.link.reported.update(self.engine.lost())
            ended_links.append(self.link)

    def _leave(self, why: str) -> None:
        for act in (*before_end, *self.at_end):
            act()
        self.engine.leave()
        self.ledger.end()
        self.comm._leave(why)
        timeline.stop()
        for process_set in self.sets:
            process_set.detach()
        self.sets = []

    def _disable(self, error: Exception) -> None:
        """Clears the caches after a fork: cached operations do not check for a forked child."""
        for process_set in self.sets:
            process_set.cached_calls = _core.NamedCalls(None, 0)
