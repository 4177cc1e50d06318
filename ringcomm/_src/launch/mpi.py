"""Finds the MPI that ranks will load, and the launcher that belongs to it. `ringrun` uses both."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ringcomm._src.core.extension import MISSING

OPEN_MPI, MPICH, INTEL = "Open MPI", "MPICH", "Intel MPI"

# MPIs that are not listed are derived from MPICH and start ranks as it does.
_FAMILY = {"Intel MPI": INTEL, "Open MPI": OPEN_MPI, "Spectrum MPI": OPEN_MPI}

_NAMES = {
    OPEN_MPI: ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun"),
    MPICH: ("mpiexec", "mpiexec.hydra", "mpirun", "mpiexec.mpich", "mpirun.mpich"),
    INTEL: ("mpirun", "mpiexec.hydra", "mpiexec"),
}

# Patterns for the output of `launcher --version`. MPICH's output is recognised by HYDRA, which
# Intel's output does not contain.
_VERSION_PATTERNS = {
    OPEN_MPI: re.compile(r"Open MPI|OpenRTE|prterun|Spectrum MPI", re.IGNORECASE),
    INTEL: re.compile(r"Intel\(R\) MPI"),
    MPICH: re.compile(r"HYDRA|MPICH|MVAPICH", re.IGNORECASE),
}

# Runs in the interpreter of the ranks. Does not initialise MPI, because the process is not a rank.
_QUERY = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
from ringcomm._src.platform.mpi_library import library_path
print("\\n" + json.dumps([*MPI.get_vendor(), library_path(MPI.__file__)]))
"""


class Mpi(NamedTuple):
    """The MPI that mpi4py loads."""

    family: str  # OPEN_MPI, MPICH or INTEL; determines how ranks are started
    vendor: str
    version: tuple[int, ...]
    library: str | None  # file of the library; None: unknown

    def __str__(self) -> str:
        return f"{self.vendor} {'.'.join(map(str, self.version))} ({self.library or 'file unknown'})"


@functools.cache
def find(python: str = sys.executable) -> Mpi:
    """Returns the MPI that mpi4py loads in `python`. Raises RuntimeError if it loads none."""
    result = subprocess.run([python, "-c", _QUERY], capture_output=True, text=True)
    if result.returncode:
        why = result.stderr.strip().splitlines()[-1:] or ["it printed no error"]
        if MISSING in why[0]:
            raise RuntimeError(why[0].partition(": ")[2])
        raise RuntimeError(
            f"mpi4py cannot load an MPI library in {python}: {why[0]}. Install one beside mpi4py, for example with "
            "'pip install ringcomm[mpich]', or load your system's MPI module first"
        )
    vendor, version, library = json.loads(result.stdout.strip().splitlines()[-1])
    return Mpi(_FAMILY.get(vendor, MPICH), vendor, tuple(version), library)


def launcher(mpi: Mpi) -> str:
    """Returns the command that starts ranks of this MPI.

    Searches beside the MPI library first, then in PATH.

    A launcher of another MPI would start every rank as a separate job. So each candidate is run
    with --version.

    Raises RuntimeError that lists the candidates if none belongs to this MPI.
    """
    others = []
    for candidate in _candidates(mpi):
        family = _family_of(candidate)
        if family == mpi.family:
            return candidate
        others.append(f"{candidate} ({f'of {family}' if family else 'of an unknown MPI'})")
    seen = f"; found only {', '.join(others)}" if others else ""
    raise RuntimeError(
        f"found no launcher of {mpi}, neither beside the library nor in PATH{seen}. "
        "Name the launcher with --mpirun or RINGCOMM_MPIRUN, or use it to start the program yourself"
    )


def _candidates(mpi: Mpi) -> Iterable[str]:
    # For lib/libmpi.so, bin/ is next to lib/; some distributions have one or two folders between.
    library_folders = [str(parent / "bin") for parent in list(Path(mpi.library).parents)[1:5]] if mpi.library else []
    folders = [*library_folders, *os.environ.get("PATH", "").split(os.pathsep)]
    found = (shutil.which(name, path=folder) for folder in folders for name in _NAMES[mpi.family])
    return dict.fromkeys(filter(None, found))


@functools.cache
def _family_of(command: str) -> str | None:
    try:
        result = subprocess.run(
            [command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(
        (family for family, pattern in _VERSION_PATTERNS.items() if pattern.search(result.stdout + result.stderr)), None
    )
