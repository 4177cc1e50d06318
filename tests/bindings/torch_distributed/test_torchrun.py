"""Jobs that torchrun starts: on MPICH, MPI's processes find each other by the job's store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from launching import environment

PROGRAM = """
import sys
import torch
import torch.distributed as dist
import ringcomm.torch

for start in range(2):
    dist.init_process_group("ringcomm")
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.full((100_000,), float(rank))
    dist.all_reduce(total)
    assert total[-1] == size * (size - 1) / 2
    if rank == 1 and sys.argv[1:] == ["raises"]:
        raise RuntimeError("of rank 1's own")
    dist.barrier()
    dist.destroy_process_group()
sys.stdout.write(f"rank {rank} of {size} is through\\n")
"""


def torchrun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", program, *arguments],
        cwd=folder,
        env=environment(),
        timeout=90,
        capture_output=True,
        text=True,
    )


def of_mpich() -> bool:
    from mpi4py import MPI

    return "MPICH" in MPI.Get_library_version()


def test_a_job_runs(tmp_path: Path) -> None:
    done = torchrun(tmp_path)
    if of_mpich():
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.split("\n"))[1:] == [f"rank {rank} of 3 is through" for rank in range(3)]
    else:
        assert done.returncode != 0
        assert "start the job with 'ringrun -np 3 python script.py' instead of torchrun" in done.stderr


@pytest.mark.slow
def test_a_rank_that_raises_ends_the_job(tmp_path: Path) -> None:
    if not of_mpich():
        pytest.skip("Open MPI needs its own launcher")
    done = torchrun(tmp_path, "raises")
    assert done.returncode != 0 and "through" not in done.stdout
    assert "RuntimeError: of rank 1's own" in done.stderr and "ending the job" in done.stderr
