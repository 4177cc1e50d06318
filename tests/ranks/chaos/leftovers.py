"""Finds resources that a job must not leave behind: processes, sockets and shared memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import processes

PRIVATE = "CHAOS_PRIVATE"  # set if this process has a private /dev/shm
_PATIENCE = 10.0  # seconds within which killed processes must end


def find(mark: str, driver: int, memories: Sequence[Path], patience: float = _PATIENCE) -> list[str]:
    """Returns the remains of a finished job in each /dev/shm; commits end with processes."""
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
    """Empties a private /dev/shm, so that the next job is not blamed for these files."""
    if PRIVATE in os.environ:
        for path in Path("/dev/shm").iterdir():
            path.unlink()


def _sockets(driver: int) -> list[str]:
    """Returns abstract socket addresses of the job; they begin with its driver's process id."""
    with open("/proc/net/unix") as file:
        return [line.split()[-1] for line in file if f"@ringcomm-{driver}-" in line]


def _files(memories: Sequence[Path]) -> list[str]:
    found = []
    for memory in memories:
        with contextlib.suppress(OSError):
            found += [f"shared memory {memory / name}" for name in os.listdir(memory) if not _is_session(name)]
    return found


def _is_session(name: str) -> bool:
    """Recognizes folders of session data of MPI or torch, which hold no shared memory."""
    return name.startswith(("ompi", "prte", "pmix", "tmp", "torchinductor"))
