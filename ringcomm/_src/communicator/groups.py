"""Groups of a communicator's ranks that their members make alone: no other rank takes part, none need know."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from ringcomm._src.arrays.device.messages import DeviceMessageRequest
from ringcomm._src.base.errors import RingcommError, ShutDownError
from ringcomm._src.communicator.communicator import QUEUED_SLOT, Communicator
from ringcomm._src.communicator.point_to_point import receive
from ringcomm._src.communicator.subgroup_bootstrap import FIRST_TAG, SubgroupBootstrap
from ringcomm._src.core import _core
from ringcomm._src.observe import accounts
from ringcomm._src.platform.bootstrap import discover
from ringcomm._src.platform.mpi_link import map_arenas_of_hosts, processes
from ringcomm._src.process import exits

MOST = 1 << 13  # groups at the most, of one rank, over time
MESSAGE_TAGS = FIRST_TAG // MOST  # of each group's messages
_LEAST_WIDTH, _MOST_WIDTH = 32, 1024  # tags of a group's calls
_OWN_SLOT = 0  # of a group's own arenas


class Group:
    """A group's own stream of calls, run in the order submitted, beside those of other groups; and its messages.

    ``ranks``: of the communicator, in the group's order; ``rank``: this one's in it; ``name``: for people.
    """

    def __init__(
        self, groups: Groups, ranks: Sequence[int], name: str, number: int, node: _core.Node | None, slot: int
    ) -> None:
        comm = groups.comm
        self.ranks, self.name, self.number = list(ranks), name, number
        self.rank, self.size = self.ranks.index(comm.rank), len(self.ranks)
        self.node = node
        self._groups, self._comm = groups, comm
        self._ledger = accounts.Ledger(2, comm.config.stats)
        self._main = self._make_stream(False, node, slot)
        self._streams: list[tuple[_core.Channel, _core.Queue] | None] = [self._main, None]
        self._making = threading.Lock()
        self._ended: Exception | None = None
        exits.watch(self)

    def _make_stream(self, beside: bool, node: _core.Node | None, slot: int) -> tuple[_core.Channel, _core.Queue]:
        """Two channels of calls, each with half of the group's tags. Not collective without a node."""
        groups, link = self._groups, self._comm._link
        width = groups.width // 2
        first_tag = self.number * groups.width + (width if beside else 0)
        config = groups.config(self._ledger.accounts[beside])
        channel = _core.Channel(groups.transport, self.ranks, self.rank, first_tag, width, node, slot, config)
        rank_of = {pid: self.ranks.index(rank) for pid, rank in link.rank_of.items() if rank in self.ranks}
        channel.watch(processes, rank_of)
        return channel, _core.Queue(link.worker, channel)

    def _stream_beside(self) -> tuple[_core.Channel, _core.Queue]:
        """Made for the first call, so its data goes by messages."""
        with self._making:
            stream = self._streams[1] or self._make_stream(True, None, _OWN_SLOT)
            self._streams[1] = stream
            return stream

    def submit(
        self, request: _core.Request, name: str | None = None, address: int = 0, beside: bool = False
    ) -> _core.Operation:
        """Runs it after those submitted before. Every member submits the same calls in the same order. Any thread may.
        With a name it is a call in place that has been made before, under this name and on other memory. `beside`: in
        a second stream, of calls that have an order among themselves only.

        Raises ShutDownError once this rank has left.
        """
        if self._ended is not None:
            raise self._ended
        _, queue = self._stream_beside() if beside else self._main
        return queue.submit(request, name, address)

    @property
    def has_left(self) -> bool:
        """Whether this rank makes no more calls."""
        return self._ended is not None

    def isend(self, x: object, dest: int, tag: int) -> _core.MessageRequest:
        """A message to a rank of the group: :meth:`ringcomm.Communicator.isend`."""
        self._comm._require_usable()
        return self._comm._messages.isend(x, self.ranks[dest], self._tag(tag), self.name)

    def irecv(self, out: object, source: int | None, tag: int) -> _core.MessageRequest | DeviceMessageRequest:
        """A message from a rank of the group, or from any (None): :meth:`ringcomm.Communicator.irecv`."""
        self._comm._require_usable()
        sender = _core.ANY_SOURCE if source is None else self.ranks[source]
        return receive(self._comm._messages, out, sender, self._tag(tag), self.name)

    def stats(self, reset: bool = False) -> accounts.Stats:
        """What this rank has moved by the group's calls, since the last reset. Messages are in the communicator's."""
        return self._ledger.stats(reset)

    def _tag(self, tag: int) -> int:
        if self._ended is not None:
            raise self._ended
        if not 0 <= tag < MESSAGE_TAGS:
            raise ValueError(f"tag {tag}: messages of a group have tags 0 to {MESSAGE_TAGS - 1}")
        return self.number * MESSAGE_TAGS + tag

    def leave(self, why: str) -> None:
        """Tells the members that this rank makes no more calls, which end with RankLeftError where they wait for it;
        what is under way here ends with ShutDownError. Not collective."""
        if self._ended is None:
            self._disable(ShutDownError(why))
            exits.unwatch(self)
            with self._making:
                streams = [one for one in self._streams if one is not None]
            for channel, queue in streams:
                queue.close()
                channel.leave()
            self._ledger.end()

    _leave = leave  # at the end of the process

    def _disable(self, error: Exception) -> None:
        self._ended = error


class Groups:
    """What the groups of a communicator stand on: one transport, whose tags they divide, and the communicator's memory
    and messages. Making it is collective."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.transport = comm._link.another_transport()
        tags = self.transport.tag_limit
        self.width = min(max(tags // MOST, _LEAST_WIDTH), _MOST_WIDTH)
        self._most = min(MOST, tags // self.width)
        self._next = 0  # number that this rank has in no group
        self._free_slots = range(QUEUED_SLOT + 1, _core.SLOTS)  # of the communicator's arenas

    def config(self, account: _core.Account) -> _core.ChannelConfig:
        """Of a group's calls, which are counted there."""
        hosts = self.comm._link.topology.host_of
        return self.comm.config.channel(hosts, self.comm.own.table, account)

    def make(self, ranks: Sequence[int], name: str, timeout: float) -> Group:
        """Collective over ``ranks``, and over nobody else; each rank's groups in one order.

        Args:
            ranks: of the communicator, in the group's order; this one among them.
            name: the same on all members; groups made at the same time differ in it.
            timeout: seconds to wait for the other members.

        Raises:
            ringcomm.RingcommError: a member does not come, or one has had all the groups that it can have.
        """
        members = SubgroupBootstrap(self.comm, ranks, name, time.monotonic() + timeout)
        number = max(members.allgather(self._next))
        if number >= self._most:
            raise RingcommError(
                f"group {name!r}: a rank of {list(ranks)} has had {number} groups, and can have no more"
            )
        self._next = number + 1
        node, slot = self._memory(list(ranks), members)
        group = Group(self, ranks, name, number, node, slot)
        members.allgather(None)  # nobody calls before all can be called
        return group

    def _memory(self, ranks: list[int], members: SubgroupBootstrap) -> tuple[_core.Node | None, int]:
        """The communicator's own arenas for a group of all its ranks, and arenas of their own for others."""
        if len(ranks) == 1 or self.comm.config.shared_memory == "off":
            return None, _OWN_SLOT
        if ranks == list(range(self.comm.size)) and self._free_slots:
            slot, self._free_slots = self._free_slots[0], self._free_slots[1:]
            if self.comm._node is not None and len(self.comm._link.topology.hosts) > 1:
                self.comm._node.reserve_leader_scratch(slot)
                members.allgather(None)  # nobody looks for what is not there yet
            return self.comm._node, slot
        node, _ = map_arenas_of_hosts(members, discover(members), (_OWN_SLOT,))
        return node, _OWN_SLOT
