"""Ranks that MPI does not know get an error, instead of several jobs of one rank each."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import mpi_case
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm._src.base.process import RANK_PROCESS
from ringcomm._src.platform.launchers import LAUNCHERS, check

SIZES = [name for launcher in LAUNCHERS for name in launcher.sizes]
OF_MPI = {name for launcher in LAUNCHERS if launcher.of_mpi for name in launcher.sizes}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "1"}


@given(
    size=st.integers(1, 8),
    said=st.dictionaries(st.sampled_from(SIZES), st.integers(0, 8).map(str) | st.sampled_from(["", "2(x3)", "-3"])),
)
def test_an_error_exactly_where_a_launcher_has_started_more_ranks_than_mpi_knows(size, said):
    numbers = {name: int(text) for name, text in said.items() if text.isdigit()}
    largest = [max(numbers.get(name, 0) for name in launcher.sizes) for launcher in LAUNCHERS]
    found = any(launcher.of_mpi and number == size for launcher, number in zip(LAUNCHERS, largest, strict=True))
    expected = max(largest) > size and not found
    try:
        check(size, "MPICH", said | TORCHRUN)
    except ringcomm.RingcommError as error:
        assert expected and "RINGCOMM_CHECK_LAUNCHER" in str(error) and f"MPI knows {size}" in str(error)
    else:
        assert not expected


@pytest.mark.parametrize("size, environment", [
    (1, {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}),  # a batch script, outside of steps
    (1, {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PTY_PORT": "4711"}),  # an interactive shell
    (1, {"SLURM_STEP_NUM_TASKS": "2", "PMI_SIZE": "1"}),  # mpiexec -n 1 in each task of a step
    (4, {"SLURM_STEP_NUM_TASKS": "2", "PMI_SIZE": "4"}),  # mpiexec's helpers, started by srun
    (1, {"WORLD_SIZE": "4"}),  # set for torch by the user
])  # fmt: skip
def test_processes_that_are_no_ranks_of_that_launcher(size, environment):
    check(size, "MPICH", environment)


@pytest.mark.parametrize("name, library, fix", [
    ("SLURM_STEP_NUM_TASKS", "MPICH", "srun --mpi=pmi2"),
    ("SLURM_STEP_NUM_TASKS", "Open MPI", "srun --mpi=pmix"),
    ("SLURM_STEP_NUM_TASKS", "Intel MPI", "srun --mpi=pmi2"),
    ("PMI_SIZE", "Open MPI", "launcher of Open MPI, or `ringrun -np 3"),
    ("OMPI_COMM_WORLD_SIZE", "", "pip install"),
])  # fmt: skip
def test_the_error_names_the_fix(name, library, fix):
    with pytest.raises(ringcomm.RingcommError, match=r"started 3 ranks .* MPI knows 1") as caught:
        check(1, library, {name: "3", RANK_PROCESS: str(os.getpid())})
    assert fix in str(caught.value)


def test_a_program_that_a_rank_has_started():
    """Ignores launcher variables that a rank's child inherits, but not a new launcher's."""
    with subprocess.Popen(["sleep", "60"], env=os.environ | {"PMI_SIZE": "4"}) as rank:
        try:
            while b"PMI_SIZE" not in Path(f"/proc/{rank.pid}/environ").read_bytes():
                time.sleep(0.01)  # the kernel sets the environment last when it starts a program
            check(1, "MPICH", {"PMI_SIZE": "4", RANK_PROCESS: str(rank.pid)})
            with pytest.raises(ringcomm.RingcommError, match="has started 2 ranks"):
                check(1, "MPICH", {"PMI_SIZE": "4", "SLURM_STEP_NUM_TASKS": "2", RANK_PROCESS: str(rank.pid)})
        finally:
            rank.kill()


def starting():
    from mpi4py import MPI

    for start in (ringcomm.init, ringcomm.Communicator, lambda: ringcomm.Communicator(MPI.COMM_SELF)):
        try:
            start()
        except ringcomm.RingcommError as error:
            mpi_case.say("refused", error)
    assert not ringcomm.is_initialized()
    ringcomm.Communicator(config=ringcomm.Config(check_launcher=False)).close()
    os.environ["RINGCOMM_CHECK_LAUNCHER"] = "0"
    ringcomm.init()
    assert ringcomm.size() == 1


def test_every_way_to_start_is_checked():
    result = mpi_case.start(0, starting, variables={"SLURM_STEP_NUM_TASKS": "2"})
    assert result.status == 0, result.text
    assert len(result.lines("refused Slurm's srun has started 2 ranks")) == 3, result.text
