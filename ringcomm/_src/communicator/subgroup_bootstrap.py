"""Bootstrap of a group: members exchange messages until the group has channels."""

from __future__ import annotations

import pickle
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcomm._src.base.errors import RingcommError
from ringcomm._src.communicator.point_to_point import PointToPointCalls

FIRST_TAG = 1 << 30  # first tag of these messages; programs use lower tags
_POLL_SECONDS = 2e-4  # seconds between two probes


class SubgroupBootstrap:
    """Implements the methods of an mpi4py communicator that platform.bootstrap needs.

    They communicate between ``ranks``, which include this rank. ``name``: groups made at the same
    time must have different names.
    """

    def __init__(self, comm: PointToPointCalls, ranks: Sequence[int], name: str, deadline: float) -> None:
        self._comm, self._ranks, self._name, self._deadline = comm, list(ranks), name, deadline
        self._tag = FIRST_TAG | zlib.crc32(repr((name, self._ranks)).encode()) & (FIRST_TAG - 1)
        self._rank = self._ranks.index(comm.rank)

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return len(self._ranks)

    def allgather(self, item: Any) -> list[Any]:
        """Returns every member's item. RingcommError: a member missed the deadline."""
        root, others = self._ranks[0], self._ranks[1:]
        if self._rank > 0:
            self._send(root, item)
            return list(self._receive(root))
        items = [item, *(self._receive(rank) for rank in others)]
        for rank in others:
            self._send(rank, items)
        return items

    def Split(self, color: int, key: int) -> SubgroupBootstrap:
        """Returns the SubgroupBootstrap of the members with this color, in the order of key."""
        pairs = self.allgather((color, key))
        members = sorted(
            (member_key, rank)
            for (member_color, member_key), rank in zip(pairs, self._ranks, strict=True)
            if member_color == color
        )
        return SubgroupBootstrap(self._comm, [rank for _, rank in members], f"{self._name}/{color}", self._deadline)

    def Free(self) -> None:
        """Does nothing: there are no resources to free."""

    def _send(self, dest: int, item: Any) -> None:
        self._comm.isend(np.frombuffer(pickle.dumps(item), np.uint8), dest, self._tag)

    def _receive(self, source: int) -> Any:
        while (status := self._comm.iprobe(source, self._tag)) is None:
            if time.monotonic() > self._deadline:
                raise RingcommError(
                    f"group {self._name!r} of ranks {self._ranks}: rank {source} has not created the group before the "
                    "timeout. Every member must create it, with the same ranks in the same order",
                    (source,),
                )
            time.sleep(_POLL_SECONDS)
        data = np.empty(status.nbytes, np.uint8)
        self._comm.recv(data, source, self._tag)
        return pickle.loads(data.tobytes())
