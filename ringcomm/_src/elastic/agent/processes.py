"""Functions for processes: sessions, signals, orphans, and their state in /proc.

The agent, the driver and zygotes use them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Sends this signal to this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def outlive_parent() -> None:
    """Cancels `die_with_parent`."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 0)


def in_own_session() -> None:
    """Prepares a child after fork: only its parent signals it, and it dies with its parent."""
    os.setsid()
    die_with_parent()


def adopt_orphans() -> None:
    """Makes this process the parent of descendants that lose their parent."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_group(pid: int, number: int = signal.SIGKILL) -> None:
    """Signals the group of a process that leads a group. The process may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def wake_at_signals() -> tuple[int, int]:
    """Returns a pipe that is readable when a child has ended, or a handled signal arrived."""
    wakeup, alarm = os.pipe()
    for end in (wakeup, alarm):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wakeup, alarm


def stat_of(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat, starting with the state of the process.

    Raises OSError if the process has ended.
    """
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def loaded_modules() -> list[str]:
    """Returns the modules of installed packages that this process has imported."""
    paths = ((name, getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items()))
    return [name for name, path in paths if "site-packages" in path or "dist-packages" in path]


def as_shell(status: int) -> int:
    """Returns the status that a shell reports for subprocess's return code."""
    return status if status >= 0 else 128 - status
