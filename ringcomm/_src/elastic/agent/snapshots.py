"""Snapshots: commits in files, from which a job continues after it has ended on all hosts.

The driver requests a snapshot, and an agent writes it.
"""

from __future__ import annotations

import contextlib
import os
import time

from ringcomm._src.elastic.agent import commit_store
from ringcomm._src.elastic.agent.commit_store import CommitStore

NAME = "ringcomm-commit"  # in the folder: one file, which is always complete
_TRIES = 100


def save(folder: str, memory: CommitStore) -> int:
    """Writes the newest commit that all ranks hold. Returns its number, or -1 if there is none.

    The commit is first copied within memory, since the buffer is reused by the next commit but one.
    The copy is written to a temporary file, which then replaces the old snapshot. Raises OSError.
    """
    for _ in range(_TRIES):
        number = memory.words[commit_store.SEALED]
        if number < 0:
            return -1
        if number <= number_in(folder):
            return number_in(folder)
        buffer = memory.buffer(number)
        before = buffer.commit()
        if before is not None and before.number == number:
            copy = os.memfd_create("ringcomm-snapshot")
            try:
                _copy(buffer.fd, copy, buffer.nbytes)
                if buffer.commit() == before:
                    _write(folder, copy)
                    return number
            finally:
                os.close(copy)
        time.sleep(0.01)
    raise OSError(f"a newer commit overwrote each of {_TRIES} copies of a commit; commit less often")


def load(folder: str, memory: CommitStore) -> None:
    """Loads the commit that `save` wrote, if there is one. Its generation is 0."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, NAME), "rb") as file:
        head = memoryview(file.read(16)).cast("q")
        buffer = memory.buffer(head[0])
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        os.posix_fallocate(buffer.fd, 0, size)
        _copy(file.fileno(), buffer.fd, size)
        buffer.adopt(0)
        memory.words[commit_store.SEALED] = head[0]


def number_in(folder: str) -> int:
    """Returns the number of the commit in the folder; -1 if there is none."""
    with contextlib.suppress(OSError, IndexError, TypeError), open(os.path.join(folder, NAME), "rb") as file:
        return int(memoryview(file.read(8)).cast("q")[0])
    return -1


def _copy(source: int, target: int, size: int) -> None:
    os.ftruncate(target, max(size, os.fstat(target).st_size))
    at = 0
    while at < size:
        at += (count := os.sendfile(target, source, at, size - at))
        if not count:
            raise OSError("the commit is truncated: it is shorter than its recorded size")


def _write(folder: str, source: int) -> None:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, NAME)
    part = f"{path}.{os.uname().nodename}.{os.getpid()}"
    try:
        with open(part, "wb") as file:
            _copy(source, file.fileno(), os.fstat(source).st_size)
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
