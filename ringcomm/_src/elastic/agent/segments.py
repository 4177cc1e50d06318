"""Files of an MPI's shared memory that nobody uses any more: a rank that is killed removes none, so another one does.

A rank may be killed before anybody could learn what it has made. So what tells is not who made a file but that no
process has it open or mapped, of this job or another, in this container or another: the kernel grants a lease then.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal

_FOLDER = "/dev/shm"
_NAMES = re.compile(
    r"mpich_|ucx_shm_posix_"  # MPICH, and UCX below it
    r"|sm_segment\.|vader_segment\.|open_mpi\.\d"  # Open MPI 5, 4, and what it tries out
    r"|psm\d?_shm\."
)


def remove_orphans(since: float) -> None:
    """Of this user, and made after `since`, of time.time()."""
    with contextlib.suppress(OSError), os.scandir(_FOLDER) as files:
        for file in files:
            with contextlib.suppress(OSError):
                found = file.stat(follow_symlinks=False)
                if _NAMES.match(file.name) and found.st_uid == os.geteuid() and found.st_ctime >= since:
                    _remove_if_orphan(file.path)


def _remove_if_orphan(path: str) -> None:
    """Raises OSError if it is none."""
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # sent to us if somebody opens it now: without effect
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.unlink(path)
    finally:
        os.close(fd)
