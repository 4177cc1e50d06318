"""Tests every route of GPU arrays on the stand-in, under delays; every wait is needed.

GPU_SEEDS: seeds of each job (2); `make test-gpu` takes more. TEST_GPU=device runs on this machine's
GPUs, without the tests that need a stand-in.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import LAUNCHER, environment
from standin import mpi_build
from standin_path import HERE, ON_DEVICE, libcuda, libkernels

from ringcomm._src.arrays.device import devices

SEEDS = int(os.environ.get("GPU_SEEDS", "2"))
only_a_stand_in = pytest.mark.skipif(ON_DEVICE, reason="only a stand-in can be told to fail")
PATHS = ("staging", "ipc", "nccl", "aware")
SLOW = pytest.mark.slow
# Ranks on each route. "levels" uses two hosts: with six ranks each host's ranks have separate GPUs,
# otherwise they share one.
JOBS = [
    (1, "staging"),
    *((3, path) for path in PATHS),
    (4, "levels"),
    *(pytest.param(ranks, path, marks=SLOW) for ranks in (2, 4, 5) for path in PATHS),
    pytest.param(6, "levels", marks=SLOW),
]


def run(ranks: int, path: str, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {"RINGCOMM_GPU_ROUTE": path, "RINGCOMM_CUDA_LIBRARY": "libcuda.so.1"}
    if not ON_DEVICE:
        cuda = Path(libcuda())
        own |= {
            "RINGCOMM_CUDA_LIBRARY": str(cuda),
            "RINGCOMM_NCCL_LIBRARY": str(cuda.with_name("libnccl.so.2")),
            "STANDIN_KERNELS": libkernels(),
            "STANDIN_DEVICES": "3" if path == "levels" and ranks == 6 else str(ranks) if path == "nccl" else "1",
        }
        if path == "aware":
            own["MPI4PY_LIBMPI"] = str(mpi_build.library())
    own |= {"PRETENDED_HOSTS": "2"} if path == "levels" else {}
    command = [str(LAUNCHER), "-n", str(ranks), sys.executable, str(HERE / program), *arguments]
    limit = 60 + 20 * SEEDS
    return subprocess.run(
        command, cwd="/tmp", env=environment() | own | variables, capture_output=True, text=True, timeout=limit
    )


@pytest.mark.parametrize(("ranks", "path"), JOBS)
def test_every_operation_and_dtype(ranks: int, path: str) -> None:
    if ON_DEVICE and path == "nccl" and devices.count() < ranks:
        pytest.skip("NCCL wants a GPU for each rank")
    done = run(ranks, path, "matrix.py", "--seeds", str(SEEDS), "--dtypes", "8", STANDIN_DELAY_US="100")
    if ON_DEVICE and "RINGCOMM_GPU_ROUTE=aware is not possible: a rank's MPI does not report" in done.stderr:
        pytest.skip("this MPI takes no addresses of GPUs")
    assert done.returncode == 0 and done.stdout.count(" 0 wrong") == ranks, done.stdout + done.stderr


@only_a_stand_in
@pytest.mark.parametrize(("ranks", "path"), [*((2, path) for path in PATHS), pytest.param(4, "levels", marks=SLOW)])
def test_each_wait_is_needed(ranks: int, path: str) -> None:
    done = run(ranks, path, "mutations.py", STANDIN_DELAY_US="60000000")  # operations that no call waits for never run
    assert done.returncode == 0 and ": noticed" in done.stdout, done.stdout + done.stderr


# A driver fault on one rank, and whether the job succeeds all the same, by another route or more
# slowly.
FAULTS = [
    ("staging", "register", True),
    ("staging", "copy:3", False),
    ("ipc", "ipc", True),
    ("ipc", "ipc_get", True),
    ("ipc", "launch:1", False),
    ("ipc", "lost:9", False),
    ("nccl", "nccl_peer:1", False),
    ("levels", "copy:3", False),
    pytest.param("aware", "alloc", True, marks=pytest.mark.slow),
    ("aware", "kernel:1", False),
]


@only_a_stand_in
@pytest.mark.parametrize(("path", "fault", "harmless"), FAULTS)
def test_a_rank_whose_driver_fails(path: str, fault: str, harmless: bool) -> None:
    ranks = 4 if path == "levels" else 2
    # short enough that the error reaches all ranks in time
    done = run(ranks, path, "faults.py", fault, STANDIN_DELAY_US="100")
    assert (done.returncode == 0) == harmless, done.stdout + done.stderr
    if harmless:
        assert done.stdout.count("0 registrations, 0 opened left") == 2, done.stdout
    else:
        assert "harmless" not in done.stdout, done.stdout


@only_a_stand_in
@SLOW
@pytest.mark.parametrize("path", [*PATHS, "levels"])
@pytest.mark.parametrize(
    "fault", ["alloc", "register", "ipc", "ipc_get", "copy:3", "launch:1", "kernel:1", "lost:9", "nccl_peer:1"]
)
def test_no_fault_leaves_a_job_waiting(path: str, fault: str) -> None:
    """Checks that peers whose streams wait for a failed kernel get an error before the job ends."""
    done = run(4 if path == "levels" else 2, path, "faults.py", fault, STANDIN_DELAY_US="100")
    told = re.search(r"rank 1: (harmless|\w+Error)", done.stdout)
    ended = "ending the job" in done.stderr or "NCCL failed on this rank after calls had returned" in done.stderr
    assert told or ended, done.stdout + done.stderr


@only_a_stand_in
def test_an_mpi_that_says_it_takes_addresses_of_gpus_and_does_not() -> None:
    done = run(2, "aware", "matrix.py", STANDIN_MPI="lies")
    assert done.returncode != 0 and "RINGCOMM_GPU_ROUTE=aware is not possible: MPI reports" in done.stderr, done.stderr
