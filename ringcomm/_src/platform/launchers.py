"""Detects launchers that MPI does not support: each rank would be a separate job.

A launcher writes the number of its ranks into their environment. If MPI's world is smaller, the
launcher and the MPI library use different protocols. A communicator calls :func:`check_world` when
it opens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from ringcomm._src.base.errors import RingcommError
from ringcomm._src.base.process import RANK_PROCESS
from ringcomm._src.platform import mpi_library


class Launcher(NamedTuple):
    """A launcher: its name, and the environment variables that hold the number of its ranks."""

    name: str
    sizes: tuple[str, ...]
    of_mpi: bool = True  # the launcher belongs to an MPI library, or sets the variables of one
    needs: str = ""  # a variable that must be set too
    unless: str = ""  # a variable that must not be set


# The task of `srun --pty` is a shell; programs that it starts are not ranks. A batch script does
# not have the variables of a step.
SRUN = Launcher("Slurm's srun", ("SLURM_STEP_NUM_TASKS",), of_mpi=False, unless="SLURM_PTY_PORT")
# Ordered from the outermost launcher inwards: srun also sets PMI_SIZE if its plugin uses PMI.
LAUNCHERS = (
    SRUN,
    Launcher("Flux", ("FLUX_JOB_SIZE",), of_mpi=False),
    Launcher("HPE's PALS (mpiexec, aprun)", ("PALS_SIZE", "PALS_LOCAL_SIZE"), of_mpi=False),
    Launcher("IBM's jsrun", ("JSM_NAMESPACE_SIZE",), of_mpi=False),
    Launcher("Open MPI's mpirun", ("OMPI_COMM_WORLD_SIZE",)),
    Launcher("mpiexec of MPICH or Intel MPI", ("PMI_SIZE", "MPI_LOCALNRANKS")),
    Launcher("MVAPICH's mpirun_rsh", ("MV2_COMM_WORLD_SIZE",)),
    Launcher("horovodrun", ("HOROVOD_SIZE",), of_mpi=False),
    Launcher("torchrun", ("WORLD_SIZE",), of_mpi=False, needs="TORCHELASTIC_RUN_ID"),
)


_FIRST_SPECIAL_STEP = 0xFFFFFF00  # first step id of batch scripts, interactive shells and similar steps


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def started(environment: Mapping[str, str]) -> dict[Launcher, int]:
    """Returns the launchers that have started this process, with their numbers of ranks."""
    candidates = [
        launcher
        for launcher in LAUNCHERS
        if launcher.unless not in environment and (not launcher.needs or launcher.needs in environment)
    ]
    sizes = {launcher: max(_number(environment.get(name, "")) for name in launcher.sizes) for launcher in candidates}
    return {launcher: size for launcher, size in sizes.items() if size}


def step_of_slurm(size: int, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the Slurm step that runs the `size` ranks of this job, as scancel names it.

    Returns an empty text if another launcher has started the ranks, inside a step or not.
    """
    found = started(environment)
    if found.get(SRUN) != size or any(name in environment for name in ("OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")):
        return ""
    job, step = (environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return f"{job}.{step}" if _number(job) and step.isdigit() and int(step) < _FIRST_SPECIAL_STEP else ""


def _inherited(found: Mapping[Launcher, int], environment: Mapping[str, str]) -> bool:
    """Returns True if this process inherited the variables of `found` from a rank of this host."""
    rank = environment.get(RANK_PROCESS, "")
    if rank in ("", str(os.getpid())):
        return False
    try:
        with open(f"/proc/{rank}/environ", "rb") as file:
            lines = os.fsdecode(file.read()).split("\0")
    except OSError:  # the rank runs on another host, so a launcher has started this process here
        return False
    return started(dict(line.split("=", 1) for line in lines if "=" in line)) == found


def plugin_of(library: str) -> str:
    """Returns the Slurm plugin for the protocol of an MPI library (measured in docs/slurm.md)."""
    return "pmix" if "Open MPI" in library else "pmi2"


def _remedy(launcher: Launcher, size: int, library: str) -> str:
    start = f"`ringrun -np {size} python script.py`, which finds the launcher of this MPI"
    if not library:
        return "Install an MPI library beside mpi4py, for example with `pip install ringcomm[mpich]`"
    if launcher is not SRUN:
        return f"Use the launcher of {library}, or {start}"
    return f"Use `srun --mpi={plugin_of(library)}` for {library}, or {start}"


def check(size: int, library: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises RingcommError if a launcher has started more ranks than MPI's world has.

    A process that a rank has started inherits the rank's variables but is not a rank, so it is not
    checked. If an MPI launcher reports the same number of ranks as MPI's world, MPI has found that
    launcher. The other launchers are then ignored.

    Parameters
    ----------
    size : int
        Number of ranks of MPI's world; 1 without MPI.
    library : str
        Name of the MPI library; empty if none can be loaded.
    environment : Mapping[str, str]
        Environment of this process.
    """
    found = started(environment)
    if _inherited(found, environment):
        return
    if any(launcher.of_mpi and count == size for launcher, count in found.items()):
        return
    for launcher, count in found.items():
        if count > size:
            raise RingcommError(
                f"{launcher.name} has started {count} ranks ({' or '.join(launcher.sizes)}), but MPI knows {size}: "
                f"each rank would run as a separate job. {_remedy(launcher, count, library)}. If this process "
                "should be a separate job, set RINGCOMM_CHECK_LAUNCHER=0"
            )


def check_world() -> None:
    """Loads MPI with mpi4py, initialises it, and runs :func:`check`."""
    try:
        mpi = mpi_library.initialized()
    except ImportError:
        check(1, "")
    else:
        check(mpi.COMM_WORLD.Get_size(), mpi.get_vendor()[0])
