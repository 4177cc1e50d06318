"""Removes files of an MPI's shared memory that no process uses: killed ranks leave their files.

A rank may be killed before its files are known, so there is no list of files. A file is removed if
no process of any job or container has it open or mapped. The test is a lease on the file, which the
kernel grants in this case only.
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
    r"|sm_segment\.|vader_segment\.|open_mpi\.\d"  # Open MPI 5 and 4, and files with which it tests
    r"|psm\d?_shm\."
)


def remove_orphans(since: float) -> None:
    """Removes unused files of this user that were made after `since`, in seconds as time.time()."""
    with contextlib.suppress(OSError), os.scandir(_FOLDER) as files:
        for file in files:
            with contextlib.suppress(OSError):
                found = file.stat(follow_symlinks=False)
                if _NAMES.match(file.name) and found.st_uid == os.geteuid() and found.st_ctime >= since:
                    _remove_if_orphan(file.path)


def _remove_if_orphan(path: str) -> None:
    """Removes the file. Raises OSError if a process uses it."""
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # sent if another process opens the file; ignored by default
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.unlink(path)
    finally:
        os.close(fd)
