"""Groups of a communicator's ranks. Making a group is collective over its members only.

The groups of a communicator share one transport. Each group uses different tags of it.
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

MAX_GROUPS = 1 << 13  # maximum number of groups that a rank can make in its lifetime
MESSAGE_TAGS = FIRST_TAG // MAX_GROUPS  # number of tags for messages of each group
_MIN_TAGS, _MAX_TAGS = 32, 1024  # least and largest number of tags for a group's calls
_GROUP_SLOT = 0  # slot that a group uses in its own arenas


class Group:
    """A group of ranks, with a stream of calls and with messages.

    Calls run in the order of submission, concurrently with those of other groups. ``ranks``: the
    communicator's ranks in the group's order; ``rank``: this rank's index in them; ``name``: for
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
        self._stream_lock = threading.Lock()
        self._left_error: Exception | None = None
        exits.watch(self)

    def _make_stream(self, second: bool, node: _core.Node | None, slot: int) -> tuple[_core.Channel, _core.Queue]:
        """Makes a channel with half of the group's tags. Collective if `node` is given."""
        groups, link = self._groups, self._comm._link
        tag_count = groups.tags_per_group // 2
        first_tag = self.number * groups.tags_per_group + (tag_count if second else 0)
        config = groups.config(self._ledger.accounts[second])
        channel = _core.Channel(groups.transport, self.ranks, self.rank, first_tag, tag_count, node, slot, config)
        rank_of = {pid: self.ranks.index(rank) for pid, rank in link.rank_of.items() if rank in self.ranks}
        channel.watch(processes, rank_of)
        return channel, _core.Queue(link.worker, channel)

    def _second_stream(self) -> tuple[_core.Channel, _core.Queue]:
        """Returns the second stream. The first call makes it, without shared memory."""
        with self._stream_lock:
            stream = self._streams[1] or self._make_stream(True, None, _GROUP_SLOT)
            self._streams[1] = stream
            return stream

    def submit(
        self, request: _core.Request, name: str | None = None, address: int = 0, second: bool = False
    ) -> _core.Operation:
        """Submits a call, to run after those submitted before. Any thread may call it.

        Every member submits the same calls in the same order. If `name` is given, `request` is that
        of an earlier in-place call, which is repeated under this name on the memory at `address`.
        `second`: use the second stream; its calls are ordered among themselves only.

        Raises ShutDownError once this rank has left.
        """
        if self._left_error is not None:
            raise self._left_error
        _, queue = self._second_stream() if second else self._main
        return queue.submit(request, name, address)

    @property
    def has_left(self) -> bool:
        """True once this rank has left the group."""
        return self._left_error is not None

    def isend(self, x: object, dest: int, tag: int) -> _core.MessageRequest:
        """Sends a message to a rank of the group, as :meth:`ringcomm.Communicator.isend` does."""
        self._comm._require_usable()
        return self._comm._messages.isend(x, self.ranks[dest], self._tag(tag), self.name)

    def irecv(self, out: object, source: int | None, tag: int) -> _core.MessageRequest | DeviceMessageRequest:
        """Receives from a rank of the group, or any (None), as a communicator's `irecv` does."""
        self._comm._require_usable()
        sender = _core.ANY_SOURCE if source is None else self.ranks[source]
        return receive(self._comm._messages, out, sender, self._tag(tag), self.name)

    def stats(self, reset: bool = False) -> accounts.Stats:
        """Returns the statistics of this rank's calls in the group since the last reset.

        Messages are counted in the communicator's statistics.
        """
        return self._ledger.stats(reset)

    def _tag(self, tag: int) -> int:
        if self._left_error is not None:
            raise self._left_error
        if not 0 <= tag < MESSAGE_TAGS:
            raise ValueError(f"tag {tag} is out of range: messages of a group have tags 0 to {MESSAGE_TAGS - 1}")
        return self.number * MESSAGE_TAGS + tag

    def leave(self, why: str) -> None:
        """Notifies the members that this rank makes no more calls. Not collective.

        Members that wait for this rank get RankLeftError; calls in progress here fail with
        ShutDownError.
        """
        if self._left_error is None:
            self._disable(ShutDownError(why))
            exits.unwatch(self)
            with self._stream_lock:
                streams = [stream for stream in self._streams if stream is not None]
            for channel, queue in streams:
                queue.close()
                channel.leave()
            self._ledger.end()

    _leave = leave  # process.exits calls it at the end of the process

    def _disable(self, error: Exception) -> None:
        self._left_error = error


class Groups:
    """Factory of a communicator's groups. Its constructor is collective.

    The factory owns the transport of the groups, and gives each group some of the transport's tags.
    Groups use the communicator's shared memory and messages.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.transport = comm._link.another_transport()
        tags = self.transport.tag_limit
        self.tags_per_group = min(max(tags // MAX_GROUPS, _MIN_TAGS), _MAX_TAGS)
        self._max_groups = min(MAX_GROUPS, tags // self.tags_per_group)
        self._next_number = 0  # smallest group number that this rank has not used
        self._free_slots = range(QUEUED_SLOT + 1, _core.SLOTS)  # free slots of the communicator's arenas

    def config(self, account: _core.Account) -> _core.ChannelConfig:
        """Returns the configuration of a group's channels; `account` counts their calls."""
        hosts = self.comm._link.topology.host_of
        return self.comm.config.channel(hosts, self.comm.custom_algorithms.table, account)

    def make(self, ranks: Sequence[int], name: str, timeout: float) -> Group:
        """Makes a group. Collective over ``ranks``.

        Ranks that are members of several common groups must make these in the same order.

        Parameters
        ----------
        ranks : Sequence[int]
            Ranks of the communicator, this rank included, in the group's order.
        name : str
            Identical on all members; groups made at the same time have different names.
        timeout : float
            Seconds to wait for the other members.

        Raises
        ------
        ringcomm.RingcommError
            A member does not call `make` in time, or has made the maximum number of groups.
        """
        bootstrap = SubgroupBootstrap(self.comm, ranks, name, time.monotonic() + timeout)
        number = max(bootstrap.allgather(self._next_number))
        if number >= self._max_groups:
            raise RingcommError(
                f"group {name!r}: a rank of {list(ranks)} has already made {number} groups, the maximum"
            )
        self._next_number = number + 1
        node, slot = self._share_memory(list(ranks), bootstrap)
        group = Group(self, ranks, name, number, node, slot)
        bootstrap.allgather(None)  # a barrier: no member may call before all members have opened their channels
        return group

    def _share_memory(self, ranks: list[int], bootstrap: SubgroupBootstrap) -> tuple[_core.Node | None, int]:
        """Returns (node, slot). A group of all ranks uses the communicator's node, others a new."""
        if len(ranks) == 1 or self.comm.config.shared_memory == "off":
            return None, _GROUP_SLOT
        if ranks == list(range(self.comm.size)) and self._free_slots:
            slot, self._free_slots = self._free_slots[0], self._free_slots[1:]
            if self.comm._node is not None and len(self.comm._link.topology.hosts) > 1:
                self.comm._node.reserve_leader_scratch(slot)
                bootstrap.allgather(None)  # a barrier: no member may use the scratch before it exists
            return self.comm._node, slot
        node, _ = map_arenas_of_hosts(bootstrap, discover(bootstrap), (_GROUP_SLOT,))
        return node, _GROUP_SLOT
