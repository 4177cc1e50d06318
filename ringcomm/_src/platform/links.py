"""What a communicator stands on: who its ranks are, transports between them, the memory they share."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from ringcomm._src.core import _core
from ringcomm._src.platform import bootstrap


class Link(abc.ABC):
    """One rank's end. `ordered` and `queued` are transports of their own: for the caller's thread and for the
    worker."""

    rank: int
    size: int
    topology: bootstrap.Topology
    ordered: _core.Transport
    queued: _core.Transport
    tags: int  # for either of them
    worker: _core.Worker
    is_whole_job = False  # whether its ranks are all the processes that the launcher started
    rank_of: dict[int, int]  # by process number: the other ranks of this host that are processes

    @abc.abstractmethod
    def exchange(self, item: Any) -> list[Any]:
        """Every rank's item, by rank. Collective."""

    @abc.abstractmethod
    def share_memory(
        self, ranks: Sequence[int] | None = None, compared: Sequence[int] = ()
    ) -> tuple[_core.Node | None, str]:
        """Arenas of those of `ranks` (None: all) that are on this host, mapped; or None and why not, the same on each
        of them. `compared`: slots in which ranks of several hosts will compare their calls. Collective over all
        ranks."""

    @abc.abstractmethod
    def another_transport(self) -> _core.Transport:
        """A further transport between all ranks. Collective."""

    @abc.abstractmethod
    def message_transport(self) -> _core.Transport:
        """A further one for messages from rank to rank, whose tags are those from `tags` on. Every rank makes it, in no
        particular order with other calls."""

    @abc.abstractmethod
    def split(self, color: int | None, key: int) -> Link | None:
        """A link between the ranks of one color, in the order of key; None for color None. Collective."""

    @abc.abstractmethod
    def free(self) -> None:
        """Gives everything back. Collective; nothing is under way."""
