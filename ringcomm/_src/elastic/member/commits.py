"""Stores commits of a state: in this process, or in memory of the host that outlives the process.

In an elastic job, the first rank of each host writes a commit for its host, into memory of the
host's agent. Then all ranks vote, by one all-reduce of a few numbers. The commit counts if it is
complete on all hosts; until then, the previous one is kept. `State` uses `HostCommits` in elastic
jobs, and `ProcessCommit` elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcomm._src.base.errors import RingcommError
from ringcomm._src.base.ops import Max
from ringcomm._src.elastic.agent.commit_store import SEALED, StoredCommit
from ringcomm._src.elastic.member.member import Member
from ringcomm._src.elastic.member.packing import pack, unpack
from ringcomm._src.named import collectives, objects, runtime


class ProcessCommit:
    """A commit in this process's memory."""

    def __init__(self) -> None:
        self._stream, self._parts = b"", list[bytearray]()

    def write(self, value: Any) -> None:
        self._stream, parts = pack(value)
        if [part.nbytes for part in parts] != [len(part) for part in self._parts]:
            self._parts = [bytearray(part.nbytes) for part in parts]
        for stored, part in zip(self._parts, parts, strict=True):
            memoryview(stored)[:] = part

    def read(self) -> Any:
        """Returns the value that was written last. Raises RingcommError if there is none."""
        if not self._stream:
            raise RingcommError("no state can be restored: nothing has been saved")
        return unpack(self._stream, [bytearray(part) for part in self._parts])

    def vote(self, requested: bool) -> bool:
        """Returns True if `requested` is true on a rank. Collective if there are several ranks."""
        if not runtime.is_initialized() or runtime.size() == 1:
            return requested
        return _vote(int(requested))[0] != 0


class Chosen(NamedTuple):
    """The commit with which a generation begins."""

    number: int
    root: int  # the first rank on a host that has it


class HostCommits:
    """Commits in the memory of this host's agent."""

    def __init__(self, member: Member) -> None:
        self._member, self._commits = member, member.commit_store
        self._next = 0  # number of the next commit
        self._failed = ""

    # ---- while training ----------------------------------------------------------------------------------------------
    def write(self, value: Any) -> None:
        """Writes the next commit. The commit counts when the ranks have voted for it."""
        self._failed = ""
        if not (self._member.stores_commits and self._member.leads):
            return
        stream, parts = pack(value)
        try:
            self._commits.buffer(self._next).write(self._next, self._member.generation, stream, parts)
        except OSError as error:
            self._failed = f"{error.strerror or error} (commit of {sum(part.nbytes for part in parts) / 1e6:.0f} MB)"

    def read(self) -> Any:
        """Returns the newest commit of this host. Raises RingcommError if there is none."""
        commits = self._commits.commits()
        if not commits:
            raise RingcommError(f"host {self._member.host} stores no commit that could be restored")
        stream, parts = self._commits.buffer(max(commit.number for commit in commits)).read()
        return unpack(stream, [bytearray(part) for part in parts])

    def vote(self, requested: bool) -> bool:
        """Returns True if ranks must commit and leave. Collective."""
        return _vote(int(requested or self._member.updated != 0))[0] != 0

    def seal(self, requested: bool) -> bool:
        """Votes as `vote` does, and makes the written commit count.

        Raises RingcommError on all ranks if a host has not stored the commit.
        """
        requested_by_any, failed, _ = _vote(int(requested or self._member.updated != 0), int(bool(self._failed)))
        if failed:
            raise self._storage_error()
        if self._member.leads:
            self._commits.words[SEALED] = self._next
        self._next += 1
        if self._next == 2 and self._member.leads:  # after one step, optimizers have imported the modules they need
            self._member.send_modules()
        return requested_by_any != 0

    def _storage_error(self) -> RingcommError:
        reasons = objects.allgather_object(self._failed, "elastic.failed")
        ranks = tuple(rank for rank, reason in enumerate(reasons) if reason)
        return RingcommError(
            f"commit {self._next} could not be stored on the hosts of ranks {list(ranks)}: {reasons[ranks[0]]}. Free "
            "memory there, or commit less data. The previous commit remains valid",
            ranks,
        )

    # ---- at the beginning of a generation ----------------------------------------------------------------------------
    def choose(self) -> Chosen | None:
        """Returns the newest commit that is complete on all hosts of its generation. Collective.

        Only commits of the last generation that wrote one are considered.
        """
        rows: list[list[StoredCommit]] = objects.allgather_object(self._commits.commits(), "elastic.held")
        latest = max((commit.generation for row in rows for commit in row), default=None)
        of_latest = [row for row in rows if any(commit.generation == latest for commit in row)]
        numbers = [{commit.number for commit in row} for row in of_latest]
        common = set.intersection(*numbers) if numbers else set()
        if not common:
            return None
        number = max(common)
        return Chosen(number, next(rank for rank, row in enumerate(rows) if row in of_latest))

    def take(self, chosen: Chosen) -> Any:
        """Returns the value of that commit on every rank. Collective.

        Afterwards every host that stores commits has only this commit.
        """
        buffer = self._commits.buffer(chosen.number)
        commit = buffer.commit()
        is_stored = commit is not None and commit.number == chosen.number
        own_stream, parts = buffer.read() if is_stored else (b"", [])
        stream = own_stream
        if runtime.local_size() < runtime.size():
            stream, parts = self._broadcast_differences(chosen.root, stream, parts)
        copies = [bytearray(part) for part in parts]
        if self._member.leads and self._member.stores_commits:
            if stream != own_stream or any(isinstance(part, np.ndarray) for part in parts):
                views = [memoryview(copy) for copy in copies]
                buffer.write(chosen.number, self._member.generation, stream, views)
            self._commits.keep_only(chosen.number, self._member.generation)
            self._commits.words[SEALED] = chosen.number
        self._next = chosen.number + 1
        _vote()  # no rank writes the next commit while another rank reads this one
        return unpack(stream, copies)

    @staticmethod
    def _broadcast_differences(root: int, stream: bytes, parts: list[memoryview]) -> tuple[bytes, list[Any]]:
        """Returns the root's commit. The root sends the parts that are not equal on all hosts."""
        sums = [_sum(part) for part in parts] if runtime.local_rank() == 0 or runtime.rank() == root else None
        rows = objects.allgather_object((stream, sums), "elastic.sums")
        stream, root_sums = rows[root]
        sizes = objects.broadcast_object([part.nbytes for part in parts], root, "elastic.sizes")
        own_parts: list[Any] = list(parts) if len(parts) == len(sizes) else [memoryview(b"")] * len(sizes)
        for i, size in enumerate(sizes):
            if all(row_sums is None or row_sums[i : i + 1] == [root_sums[i]] for _, row_sums in rows):
                continue
            part = np.frombuffer(own_parts[i], np.uint8) if runtime.rank() == root else np.empty(size, np.uint8)
            own_parts[i] = np.array(part)
            collectives.broadcast_(own_parts[i], root, f"elastic.part.{i}")
        return stream, own_parts


def _sum(part: memoryview) -> tuple[int, int]:
    aligned = part.nbytes // 8 * 8
    words = np.frombuffer(part[:aligned], np.int64)
    return part.nbytes, int(np.add.reduce(words)) + sum(part[aligned:])


def _vote(*values: int) -> list[int]:
    """Returns, for each of up to three numbers, the maximum over all ranks. Collective."""
    votes = np.zeros(3, np.int64)
    votes[: len(values)] = values
    if runtime.size() == 1:
        return [int(value) for value in votes]
    return [int(value) for value in runtime.communicator().allreduce(votes, op=Max)]
