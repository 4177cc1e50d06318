"""Files of an MPI's shared memory: a process that is killed removes none, so another one does."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

_NAMES = re.compile(r"(/dev/shm/(?:mpich_shm_|sm_segment|vader_segment|psm)\S*)$", re.M)


def segments_of(pid: int) -> set[str]:
    """That a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps") as file:
            return set(_NAMES.findall(file.read()))
    except OSError:
        return set()


def remove(segments: Iterable[str]) -> None:
    for name in segments:
        with contextlib.suppress(OSError):
            os.unlink(name)
