"""What a job may leave behind, and must not."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import processes

PRIVATE = "CHAOS_PRIVATE"  # set where this process has a /dev/shm of its own
_PATIENCE = 10.0  # seconds in which what was killed has to go


def find(mark: str, driver: int, memories: Sequence[Path], patience: float = _PATIENCE) -> list[str]:
    """Of a job that has ended, on every machine whose /dev/shm is given. Memory of commits goes with the processes."""
    until = time.monotonic() + patience
    looks: list[Callable[[], list[str]]] = [
        lambda: [f"process {it.pid}, {it.role} ({it.state}): {it.line[:120]}" for it in processes.of_job(mark)],
        lambda: _sockets(driver),
        lambda: _files(memories),
    ]
    while (left := [what for look in looks for what in look()]) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def clear() -> None:
    """So that the next job is not blamed, where /dev/shm is these jobs' alone."""
    if PRIVATE in os.environ:
        for path in Path("/dev/shm").iterdir():
            path.unlink()


def _sockets(driver: int) -> list[str]:
    """Abstract addresses of the job: they begin with its driver's process id."""
    with open("/proc/net/unix") as file:
        return [line.split()[-1] for line in file if f"@ringcomm-{driver}-" in line]


def _files(memories: Sequence[Path]) -> list[str]:
    found = []
    for memory in memories:
        with contextlib.suppress(OSError):
            found += [f"shared memory {memory / name}" for name in os.listdir(memory) if not _is_session(name)]
    return found


def _is_session(name: str) -> bool:
    """Folders of an MPI's or torch's own bookkeeping, where /dev/shm is TMPDIR too: no memory."""
    return name.startswith(("ompi", "prte", "pmix", "tmp", "torchinductor"))
