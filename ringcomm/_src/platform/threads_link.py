"""Connects ranks that are threads, for ringcomm.threads and for one rank without MPI."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

from ringcomm._src.base.errors import PeerLostError
from ringcomm._src.core import _core
from ringcomm._src.platform import bootstrap
from ringcomm._src.platform.links import Link
from ringcomm._src.platform.workers import worker


class ThreadsWorld:
    """The state that ranks share if they are threads: transports, arenas, a barrier."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.hubs: list[_core.ThreadsHub] = []
        self.nodes: list[_core.Node] = []
        self.parts: list[tuple[ThreadsWorld, list[int]]] = []
        self.lock = threading.Lock()
        self.barrier = threading.Barrier(size)
        self.board: list[Any] = [None] * size

    def exchange(self, rank: int, item: Any) -> list[Any]:
        self.board[rank] = item
        try:
            self.barrier.wait()
            out = list(self.board)
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise PeerLostError("another rank's thread has ended with an error") from None
        return out

    def hub(self, index: int) -> _core.ThreadsHub:
        with self.lock:
            while len(self.hubs) <= index:
                self.hubs.append(_core.ThreadsHub(self.size))
            return self.hubs[index]

    def node(self, rank: int) -> _core.Node:
        with self.lock:
            self.nodes = self.nodes or _core.Node.for_threads(self.size)
            return self.nodes[rank]

    def kill(self, rank: int) -> None:
        """Marks `rank` as dead: peers that wait for it, now or later, get PeerLostError."""
        self.barrier.abort()
        with self.lock:
            for hub in self.hubs:
                hub.kill(rank)
            for node in self.nodes[:1]:
                node.kill(rank)
            parts = list(self.parts)
        for part, members in parts:
            if rank in members:
                part.kill(members.index(rank))


class ThreadsLink(Link):
    """One thread's end of a ThreadsWorld. With one rank, it also replaces MPI if there is none."""

    def __init__(self, world: ThreadsWorld, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size
        self.topology = bootstrap.Topology.single_host(rank, world.size, socket.gethostname())
        self.tags = 1 << 15
        self.rank_of = {}
        self._transports = 0
        self.ordered, self.queued = self.another_transport(), self.another_transport()
        self.worker = worker(True)

    def exchange(self, item: Any) -> list[Any]:
        return self.world.exchange(self.rank, item)

    def another_transport(self) -> _core.Transport:
        self._transports += 1
        return _core.Transport.threads(self.world.hub(self._transports - 1), self.rank)

    def message_transport(self) -> _core.Transport:
        return self.another_transport()

    def share_memory(
        self, ranks: Sequence[int] | None = None, comparison_slots: Sequence[int] = ()
    ) -> tuple[_core.Node | None, str]:
        if ranks is not None and len(ranks) < self.size:
            return None, "ranks are threads, and only some of them take part"
        return self.world.node(self.rank), ""

    def split(self, color: int | None, key: int) -> Link | None:
        colors_and_keys = self.exchange((color, key))
        members = sorted(
            (r for r in range(self.size) if colors_and_keys[r][0] == color), key=lambda r: (colors_and_keys[r][1], r)
        )
        is_leader = color is not None and members[0] == self.rank
        part = self.exchange(ThreadsWorld(len(members)) if is_leader else None)[members[0]]
        if color is None:
            return None
        if is_leader:
            with self.world.lock:
                self.world.parts.append((part, members))
        return ThreadsLink(part, members.index(self.rank))

    def free(self) -> None:
        del self.ordered, self.queued
