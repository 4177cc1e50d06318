"""Memory of a host that outlives its trainers: a page of words, and two buffers for commits.

Commit k is written to buffer k mod 2, which is invalid meanwhile. A writer that dies leaves the
other buffer, with commit k-1, complete. That buffer is reused only after all ranks have voted that
they hold commit k. The memory consists of memfds, which the agent owns and trainers map.
"""

from __future__ import annotations

import itertools
import mmap
import os
from array import array
from collections.abc import Sequence
from typing import NamedTuple

PAGE = 4096
_NONE = -1
# Indices of the 8-byte words of the page.
UPDATED = 0  # not 0: ranks must commit and leave; 1: hosts were added or removed, 2: the job is interrupted
SEALED = 1  # the newest commit that all ranks have voted for; trainers write it
# Indices of the words at the start of a buffer.
_VALID, _GENERATION, _STREAM, _PARTS = range(4)
_ALIGN = 64


class StoredCommit(NamedTuple):
    """A complete commit in a buffer."""

    generation: int  # generation that wrote it or adopted it
    number: int


def allocate() -> list[int]:
    """Allocates the memory. Returns the file descriptors of the page and the buffers."""
    fds = [os.memfd_create(f"ringcomm-{name}") for name in ("page", "commit-0", "commit-1")]
    for fd in fds:
        os.posix_fallocate(fd, 0, PAGE)
    store = CommitStore(fds)
    store.words[SEALED] = _NONE
    for buffer in store.buffers:
        buffer.invalidate()
    return fds


class CommitStore:
    """A view of the memory that `allocate` has allocated."""

    def __init__(self, fds: Sequence[int]) -> None:
        self.words = memoryview(mmap.mmap(fds[0], PAGE)).cast("q")
        self.buffers = [Buffer(fd) for fd in fds[1:]]

    def commits(self) -> list[StoredCommit]:
        """Returns the complete commits, the newest last."""
        return sorted(commit for buffer in self.buffers if (commit := buffer.commit()))

    def buffer(self, number: int) -> Buffer:
        """Returns the buffer for a commit of this number."""
        return self.buffers[number % len(self.buffers)]

    def keep_only(self, number: int, generation: int) -> None:
        """Assigns the commit of that number to this generation. Invalidates the other buffer."""
        for buffer in self.buffers:
            if buffer is not self.buffer(number):
                buffer.invalidate()
        self.buffer(number).adopt(generation)


class Buffer:
    """One commit: words, sizes of parts, pickle stream, parts (each aligned to 64 bytes)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map()

    def _map(self) -> None:
        size = os.fstat(self.fd).st_size
        self._bytes = memoryview(mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)))
        self._words = self._bytes[:PAGE].cast("q")

    def _refresh(self) -> None:
        """Maps the buffer again if another process has extended it."""
        if os.fstat(self.fd).st_size > len(self._bytes):
            self._map()

    def commit(self) -> StoredCommit | None:
        number = self._words[_VALID]
        return StoredCommit(self._words[_GENERATION], number) if number != _NONE else None

    def invalidate(self) -> None:
        self._words[_VALID] = _NONE

    def adopt(self, generation: int) -> None:
        self._words[_GENERATION] = generation

    def write(self, number: int, generation: int, stream: bytes, parts: Sequence[memoryview]) -> None:
        """Writes a commit. Parts are contiguous bytes.

        Raises OSError if there is no memory for it; then the buffer is invalid.
        """
        self.invalidate()
        sizes = [len(stream), *(part.nbytes for part in parts)]
        table = PAGE + 8 * len(parts)
        offsets = _offsets(table, sizes)
        total = offsets[-1]
        if total > os.fstat(self.fd).st_size:
            os.posix_fallocate(self.fd, 0, total)
        self._refresh()
        self._bytes[PAGE:table] = array("q", sizes[1:]).tobytes()
        for offset, size, part in zip(offsets, sizes, (memoryview(stream), *parts), strict=False):
            self._bytes[offset : offset + size] = part.cast("B") if part.format != "B" or part.ndim != 1 else part
        self._words[_STREAM], self._words[_PARTS] = len(stream), len(parts)
        self._words[_GENERATION] = generation
        self._words[_VALID] = number

    def read(self) -> tuple[bytes, list[memoryview]]:
        """Returns the stream, and views of the parts, which the next `write` overwrites."""
        sizes, offsets = self._layout()
        stream, *parts = (self._bytes[offset : offset + size] for offset, size in zip(offsets, sizes, strict=False))
        return bytes(stream), parts

    @property
    def nbytes(self) -> int:
        """Size of the commit in bytes, including the words at the start of the buffer."""
        return self._layout()[1][-1]

    def _layout(self) -> tuple[list[int], list[int]]:
        """Returns the sizes of the stream and the parts, and their offsets, then the total size."""
        self._refresh()
        table = PAGE + 8 * self._words[_PARTS]
        sizes = [self._words[_STREAM], *self._bytes[PAGE:table].cast("q")]
        return sizes, _offsets(table, sizes)


def _offsets(begin: int, sizes: Sequence[int]) -> list[int]:
    """Returns the aligned offset of each item, followed by the end of the last one."""
    padded = (-(-size // _ALIGN) * _ALIGN for size in sizes)
    return list(itertools.accumulate(padded, initial=-(-begin // _ALIGN) * _ALIGN))
