"""Groups of a communicator's ranks. Making a group is collective over its members only.

The groups of a communicator share one transport, and divide its tags.
"""

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

MOST = 1 << 13  # maximum number of groups that a rank can make in its lifetime
MESSAGE_TAGS = FIRST_TAG // MOST  # number of tags for messages of each group
_LEAST_WIDTH, _MOST_WIDTH = 32, 1024  # least and largest number of tags for a group's calls
_OWN_SLOT = 0  # slot that a group uses in its own arenas


class Group:
    """A group: a stream of calls that run in the order of submission, concurrently with other groups; and messages.

    ``ranks``: the communicator's ranks in the group's order; ``rank``: this rank's index in them; ``name``: for
    messages to users.
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
        """Makes one of the group's two channels, each with half of its tags. Not collective without a node."""
        groups, link = self._groups, self._comm._link
        width = groups.width // 2
        first_tag = self.number * groups.width + (width if beside else 0)
        config = groups.config(self._ledger.accounts[beside])
        channel = _core.Channel(groups.transport, self.ranks, self.rank, first_tag, width, node, slot, config)
        rank_of = {pid: self.ranks.index(rank) for pid, rank in link.rank_of.items() if rank in self.ranks}
        channel.watch(processes, rank_of)
        return channel, _core.Queue(link.worker, channel)

    def _stream_beside(self) -> tuple[_core.Channel, _core.Queue]:
        """Returns the second stream. The first call makes it, without shared memory: that would be collective."""
        with self._making:
            stream = self._streams[1] or self._make_stream(True, None, _OWN_SLOT)
            self._streams[1] = stream
            return stream

    def submit(
        self, request: _core.Request, name: str | None = None, address: int = 0, beside: bool = False
    ) -> _core.Operation:
        """Submits a call, to run after those submitted before. Any thread may call it.

        Every member submits the same calls in the same order. With a `name`, the request repeats an in-place call made
        before under this name, on the memory at `address`. `beside`: use the second stream; its calls are ordered among
        themselves only.

        Raises ShutDownError once this rank has left.
        """
        if self._ended is not None:
            raise self._ended
        _, queue = self._stream_beside() if beside else self._main
        return queue.submit(request, name, address)

    @property
    def has_left(self) -> bool:
        """True once this rank has left the group."""
        return self._ended is not None

    def isend(self, x: object, dest: int, tag: int) -> _core.MessageRequest:
        """Sends a message to a rank of the group, as :meth:`ringcomm.Communicator.isend` does."""
        self._comm._require_usable()
        return self._comm._messages.isend(x, self.ranks[dest], self._tag(tag), self.name)

    def irecv(self, out: object, source: int | None, tag: int) -> _core.MessageRequest | DeviceMessageRequest:
        """Receives from a rank of the group, or any rank (None), as :meth:`ringcomm.Communicator.irecv` does."""
        self._comm._require_usable()
        sender = _core.ANY_SOURCE if source is None else self.ranks[source]
        return receive(self._comm._messages, out, sender, self._tag(tag), self.name)

    def stats(self, reset: bool = False) -> accounts.Stats:
        """Returns the statistics of this rank's calls in the group since the last reset.

        Messages are counted in the communicator's statistics.
        """
        return self._ledger.stats(reset)

    def _tag(self, tag: int) -> int:
        if self._ended is not None:
            raise self._ended
        if not 0 <= tag < MESSAGE_TAGS:
            raise ValueError(f"tag {tag}: messages of a group have tags 0 to {MESSAGE_TAGS - 1}")
        return self.number * MESSAGE_TAGS + tag

    def leave(self, why: str) -> None:
        """Notifies the members that this rank makes no more calls. Not collective.

        Members that wait for this rank get RankLeftError; calls in progress here fail with ShutDownError.
        """
        if self._ended is None:
            self._disable(ShutDownError(why))
            exits.unwatch(self)
            with self._making:
                streams = [one for one in self._streams if one is not None]
            for channel, queue in streams:
                queue.close()
                channel.leave()
            self._ledger.end()

    _leave = leave  # process.exits calls it at the end of the process

    def _disable(self, error: Exception) -> None:
        self._ended = error


class Groups:
    """Factory of a communicator's groups. Its constructor is collective.

    It owns the groups' transport, and divides its tags between them. Groups use the communicator's shared memory and
    messages.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.transport = comm._link.another_transport()
        tags = self.transport.tag_limit
        self.width = min(max(tags // MOST, _LEAST_WIDTH), _MOST_WIDTH)
        self._most = min(MOST, tags // self.width)
        self._next = 0  # least group number that this rank has not used
        self._free_slots = range(QUEUED_SLOT + 1, _core.SLOTS)  # free slots of the communicator's arenas

    def config(self, account: _core.Account) -> _core.ChannelConfig:
        """Returns the configuration of a group's channels; `account` counts their calls."""
        hosts = self.comm._link.topology.host_of
        return self.comm.config.channel(hosts, self.comm.own.table, account)

    def make(self, ranks: Sequence[int], name: str, timeout: float) -> Group:
        """Makes a group. Collective over ``ranks`` only; members make their common groups in the same order.

        Args:
            ranks: ranks of the communicator, this rank included, in the group's order.
            name: identical on all members; groups made at the same time have different names.
            timeout: seconds to wait for the other members.

        Raises:
            ringcomm.RingcommError: a member does not call it in time, or has made the maximum number of groups.
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
        members.allgather(None)  # a barrier: no member may call before all members have opened their channels
        return group

    def _memory(self, ranks: list[int], members: SubgroupBootstrap) -> tuple[_core.Node | None, int]:
        """Returns node and slot: the communicator's arenas for a group of all its ranks, else new arenas."""
        if len(ranks) == 1 or self.comm.config.shared_memory == "off":
            return None, _OWN_SLOT
        if ranks == list(range(self.comm.size)) and self._free_slots:
            slot, self._free_slots = self._free_slots[0], self._free_slots[1:]
            if self.comm._node is not None and len(self.comm._link.topology.hosts) > 1:
                self.comm._node.reserve_leader_scratch(slot)
                members.allgather(None)  # a barrier: no member may use the scratch before it exists
            return self.comm._node, slot
        node, _ = map_arenas_of_hosts(members, discover(members), (_OWN_SLOT,))
        return node, _OWN_SLOT
