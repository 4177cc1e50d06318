"""Stores commits of a state: in this process, or in memory of the host that outlives the process.

In an elastic job, the first rank of each host writes a commit for its host, into memory of the
host's agent. Then all ranks vote, by one all-reduce of a few numbers. The commit counts if it is
complete on all hosts; only then is the previous one released. `State` uses `Kept` in elastic jobs,
and `Private` elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.base.errors import RingcommError
from ringcomm._src.base.ops import Max
from ringcomm._src.elastic.agent.keeper import SEALED, Held
from ringcomm._src.elastic.member.member import Member
from ringcomm._src.elastic.member.packing import pack, unpack
from ringcomm._src.named import collectives, objects, runtime


class Private:
    """A commit in this process's memory."""

    def __init__(self) -> None:
        self._stream, self._parts = b"", list[bytearray]()

    def write(self, value: Any) -> None:
        self._stream, parts = pack(value)
        if [part.nbytes for part in parts] != [len(part) for part in self._parts]:
            self._parts = [bytearray(part.nbytes) for part in parts]
        for kept, part in zip(self._parts, parts, strict=True):
            memoryview(kept)[:] = part

    def read(self) -> Any:
        """Returns the value that was written last. Raises RingcommError if there is none."""
        if not self._stream:
            raise RingcommError("there is nothing to be restored: nothing has been saved")
        return unpack(self._stream, [bytearray(part) for part in self._parts])

    def vote(self, asked: bool) -> bool:
        """Returns True if any rank asks. Collective if there are several ranks."""
        if not runtime.is_initialized() or runtime.size() == 1:
            return asked
        return _vote(int(asked))[0] != 0


class Chosen(NamedTuple):
    """The commit with which a generation begins."""

    number: int
    root: int  # the first rank on a host that has it


class Kept:
    """Commits in the memory of this host's agent."""

    def __init__(self, member: Member) -> None:
        self._member, self._keeper = member, member.keeper
        self._next = 0  # number of the next commit
        self._failed = ""

    # ---- while training ----------------------------------------------------------------------------------------------
    def write(self, value: Any) -> None:
        """Writes the next commit. It counts once ranks have voted."""
        self._failed = ""
        if not (self._member.keeps and self._member.leads):
            return
        stream, parts = pack(value)
        try:
            self._keeper.buffer(self._next).write(self._next, self._member.generation, stream, parts)
        except OSError as error:
            self._failed = f"{error.strerror or error} (of {sum(part.nbytes for part in parts) / 1e6:.0f} MB)"

    def read(self) -> Any:
        """Returns the newest commit of this host. Raises RingcommError if there is none."""
        held = self._keeper.held()
        if not held:
            raise RingcommError(f"host {self._member.host} keeps no commit that could be restored")
        stream, parts = self._keeper.buffer(max(one.number for one in held)).read()
        return unpack(stream, [bytearray(part) for part in parts])

    def vote(self, asked: bool) -> bool:
        """Returns True if ranks must commit and leave. Collective."""
        return _vote(int(asked or self._member.updated != 0))[0] != 0

    def seal(self, asked: bool) -> bool:
        """Votes as `vote` does, and makes the written commit count.

        Raises RingcommError on all ranks if a host has not stored the commit.
        """
        asked_by_any, failed, _ = _vote(int(asked or self._member.updated != 0), int(bool(self._failed)))
        if failed:
            raise self._not_kept()
        if self._member.leads:
            self._keeper.words[SEALED] = self._next
        self._next += 1
        if self._next == 2 and self._member.leads:  # after one step, optimizers have imported the modules they need
            self._member.tell_modules()
        return asked_by_any != 0

    def _not_kept(self) -> RingcommError:
        why = objects.allgather_object(self._failed, "elastic.failed")
        ranks = tuple(rank for rank, one in enumerate(why) if one)
        return RingcommError(
            f"commit {self._next} could not be kept on the hosts of ranks {list(ranks)}: {why[ranks[0]]}. Free memory "
            "there, or commit less; the commit before it stays",
            ranks,
        )

    # ---- at the beginning of a generation ----------------------------------------------------------------------------
    def choose(self) -> Chosen | None:
        """Returns the newest commit that is complete on all hosts of the last generation that wrote one. Collective."""
        rows: list[list[Held]] = objects.allgather_object(self._keeper.held(), "elastic.held")
        latest = max((held.generation for row in rows for held in row), default=None)
        of_latest = [row for row in rows if any(held.generation == latest for held in row)]
        numbers = [{held.number for held in row} for row in of_latest]
        common = set.intersection(*numbers) if numbers else set()
        if not common:
            return None
        number = max(common)
        return Chosen(number, next(rank for rank, row in enumerate(rows) if row in of_latest))

    def take(self, chosen: Chosen) -> Any:
        """Returns the value of that commit on every rank. Collective.

        Afterwards every host that stores commits has this one and no other.
        """
        buffer = self._keeper.buffer(chosen.number)
        held = buffer.held()
        mine = held is not None and held.number == chosen.number
        here, parts = buffer.read() if mine else (b"", [])
        stream = here
        if runtime.local_size() < runtime.size():
            stream, parts = self._alike(chosen.root, stream, parts)
        copies = [bytearray(part) for part in parts]
        if self._member.leads and self._member.keeps:
            if stream != here or any(isinstance(part, np.ndarray) for part in parts):
                views = [memoryview(copy) for copy in copies]
                buffer.write(chosen.number, self._member.generation, stream, views)
            self._keeper.keep_only(chosen.number, self._member.generation)
            self._keeper.words[SEALED] = chosen.number
        self._next = chosen.number + 1
        _vote()  # no rank writes the next commit while another rank reads this one
        return unpack(stream, copies)

    @staticmethod
    def _alike(root: int, stream: bytes, parts: list[memoryview]) -> tuple[bytes, list[Any]]:
        """Returns the root's commit. Parts that are equal on all hosts stay in place; the root sends the rest."""
        sums = [_sum(part) for part in parts] if runtime.local_rank() == 0 or runtime.rank() == root else None
        rows = objects.allgather_object((stream, sums), "elastic.sums")
        stream, wanted = rows[root]
        sizes = objects.broadcast_object([part.nbytes for part in parts], root, "elastic.sizes")
        mine: list[Any] = list(parts) if len(parts) == len(sizes) else [memoryview(b"")] * len(sizes)
        for i, size in enumerate(sizes):
            if all(row_sums is None or row_sums[i : i + 1] == [wanted[i]] for _, row_sums in rows):
                continue
            part = np.frombuffer(mine[i], np.uint8) if runtime.rank() == root else np.empty(size, np.uint8)
            mine[i] = np.array(part)
            collectives.broadcast_(mine[i], root, f"elastic.part.{i}")
        return stream, mine


def _sum(part: memoryview) -> tuple[int, int]:
    whole = part.nbytes // 8 * 8
    words = np.frombuffer(part[:whole], np.int64)
    return part.nbytes, int(np.add.reduce(words)) + sum(part[whole:])


def _vote(*values: int) -> list[int]:
    """Returns the maximum over all ranks of each of up to three numbers. Collective."""
    mine = np.zeros(3, np.int64)
    mine[: len(values)] = values
    if runtime.size() == 1:
        return [int(value) for value in mine]
    return [int(value) for value in runtime.communicator().allreduce(mine, op=Max)]
