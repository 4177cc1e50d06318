"""Processes and their ends, as a host's kernel has them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """By this signal, when the thread that started this process ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def outlive_parent() -> None:
    """Takes `die_with_parent` back."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 0)


def in_own_session() -> None:
    """Between fork and exec of a child whose signals come from its parent alone; and it dies with that."""
    os.setsid()
    die_with_parent()


def adopt_orphans() -> None:
    """Processes that descend from this one become its children when their parents end."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_group(pid: int, number: int = signal.SIGKILL) -> None:
    """Of a process that may be gone, and has a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def wake_at_signals() -> tuple[int, int]:
    """A pipe: its first end can be read when a child has ended, or another signal has come that a handler takes."""
    wakeup, alarm = os.pipe()
    for end in (wakeup, alarm):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wakeup, alarm


def stat_of(pid: int) -> list[str]:
    """State, parent, and what follows behind a process's name in its stat. Raises OSError if there is none."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def loaded_modules() -> list[str]:
    """Of this one: what it has imported that comes from where packages are installed."""
    places = ((name, getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items()))
    return [name for name, place in places if "site-packages" in place or "dist-packages" in place]


def as_shell(status: int) -> int:
    """What a shell makes of subprocess's return code."""
    return status if status >= 0 else 128 - status
