"""The interface between a communicator and what connects its ranks: MPI, or threads.

A link provides the topology, transports between the ranks, and the shared memory of a host.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from ringcomm._src.core import _core
from ringcomm._src.platform import bootstrap


class Link(abc.ABC):
    """One rank's end of the connection to its peers.

    `ordered` and `queued` are separate transports: the caller's thread uses the first, the worker
    the second.
    """

    rank: int
    size: int
    topology: bootstrap.Topology
    ordered: _core.Transport
    queued: _core.Transport
    tags: int  # number of tags of each of the two transports
    worker: _core.Worker
    is_whole_job = False  # True if the ranks are all processes that the launcher has started
    rank_of: dict[int, int]  # process id -> rank, for the other ranks of this host; empty if ranks are threads

    @abc.abstractmethod
    def exchange(self, item: Any) -> list[Any]:
        """Returns the items of all ranks, ordered by rank. Collective."""

    @abc.abstractmethod
    def share_memory(
        self, ranks: Sequence[int] | None = None, comparison_slots: Sequence[int] = ()
    ) -> tuple[_core.Node | None, str]:
        """Maps the arenas of this host's ranks, or of `ranks`. Collective over all ranks.

        Returns the mapped arenas; or None and the reason, which is identical on the sharing ranks.
        `comparison_slots`: slots in which ranks of several hosts compare their calls.
        """

    @abc.abstractmethod
    def another_transport(self) -> _core.Transport:
        """Makes a further transport between all ranks. Collective."""

    @abc.abstractmethod
    def message_transport(self) -> _core.Transport:
        """Makes a transport for point-to-point messages, with tags from `tags` on.

        Every rank calls it, in any order relative to other calls.
        """

    @abc.abstractmethod
    def split(self, color: int | None, key: int) -> Link | None:
        """Returns a link between the ranks with this color, ordered by key. Collective.

        Returns None if `color` is None.
        """

    @abc.abstractmethod
    def free(self) -> None:
        """Releases all resources. Collective; no operation may be in progress."""
