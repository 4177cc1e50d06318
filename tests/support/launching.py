"""Starts commands as a user would: alone, or on ranks under the MPI of this interpreter.

Tests of programs and scripts use it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(sys.executable).with_name("mpiexec")
_folder = tempfile.TemporaryDirectory(
    prefix="ringcomm-launchers-", ignore_cleanup_errors=True
)  # until this process ends


def environment() -> dict[str, str]:
    """Returns variables that let Open MPI run as root and with more ranks than cores.

    Each launcher that is started with them keeps its files in a new folder: with a shared one,
    Open MPI refuses to start if a killed launcher with the same process ID has left files there.
    """
    folder = tempfile.mkdtemp(dir=_folder.name)
    return os.environ | {
        "PRTE_MCA_prte_tmpdir_base": folder,
        "OMPI_MCA_orte_tmpdir_base": folder,  # for Open MPI 4
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # for Open MPI 4
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_btl": "^ofi",  # otherwise MPI_Init takes a second, see ringcomm._src.platform.mpi_library.quick_start
        "OMP_NUM_THREADS": "1",
    }


def run(
    arguments: Sequence[str | Path],
    folder: Path,
    ranks: int = 0,
    timeout: float = 240,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter with `arguments`. Returns the finished process, also if it failed.

    `folder` is the working directory; it must not be the clone, which hides the installed package.
    With ranks = 0 there is no launcher. The caller checks the exit status.
    """
    launch = [str(LAUNCHER), "-n", str(ranks)] if ranks else []
    return subprocess.run(
        [*launch, sys.executable, *map(str, arguments)],
        cwd=folder,
        env=environment() | dict(variables or {}),
        timeout=timeout,
        capture_output=True,
        text=True,
    )


def output_of(
    arguments: Sequence[str | Path],
    folder: Path,
    ranks: int = 0,
    timeout: float = 240,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Returns the standard output of a run that must succeed."""
    done = run(arguments, folder, ranks, timeout, variables)
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
