"""The backend of torch.distributed on ranks under mpiexec: its own cases, and PyTorch's suite."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import launching  # noqa: E402
import mpi_case  # noqa: E402

PATHS = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))


def run_cases(module_name: str, wanted: str = "") -> None:
    """Twice, for a group may be made again; a case that fails on one rank ends the job, for the others would wait."""
    import torch.distributed as dist

    import ringcomm.torch.distributed

    cases = [
        (name, case)
        for name, case in vars(importlib.import_module(module_name)).items()
        if name.startswith("case_") and wanted in name
    ]
    for part in (cases[::2], cases[1::2]):
        dist.init_process_group(ringcomm.torch.distributed.NAME)
        rank, size = dist.get_rank(), dist.get_world_size()
        for name, case in part:
            try:
                case()
            except BaseException:
                print(f"rank {rank}: {name} failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
                os._exit(1)
        dist.destroy_process_group()
    if rank == 0:
        print(f"passed {len(cases)} cases on {size} ranks", flush=True)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_cases(ranks: int) -> None:
    variables = {"PYTHONPATH": PATHS}
    result = mpi_case.run(ranks, run_cases, "cases_distributed", limit=200, variables=variables)
    (line,) = result.lines("passed ")
    assert line.endswith(f"cases on {max(ranks, 1)} ranks")


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_the_suite_of_pytorch(ranks: int, tmp_path: Path) -> None:
    text = launching.output_of(["-W", "ignore", HERE / "torch_suite.py"], tmp_path, ranks)
    (line,) = [line for line in text.splitlines() if line.endswith("s") and " passed, " in line]
    assert " 0 failed" in line and int(line.split()[0]) >= 90


def one_rank_ends(how: str) -> None:
    import signal

    import torch
    import torch.distributed as dist

    import ringcomm.torch.distributed

    dist.init_process_group(ringcomm.torch.distributed.NAME)
    dist.all_reduce(torch.ones(3))
    if dist.get_rank() == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(0)
    try:
        dist.all_reduce(torch.ones(1 << 20))
    except (ringcomm.RankLeftError, ringcomm.PeerLostError) as error:
        print(f"told: {type(error).__name__}", flush=True)
        raise


@pytest.mark.mpi
@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_rank_that_ends_is_told(how: str) -> None:
    """Without destroy_process_group."""
    result = mpi_case.start(3, one_rank_ends, how, limit=60, variables={"PYTHONPATH": PATHS})
    assert result.status != 0 and not result.left_behind
    told = {line for line in result.text.splitlines() if line.startswith("told: ")}
    assert told <= {"told: RankLeftError", "told: PeerLostError"}
    assert told or "rank 1 of 3" in result.text  # a launcher may end the others before they find out


if __name__ == "__main__":  # by hand: mpiexec -n 2 python test_torch_distributed.py [part of a name]
    run_cases("cases_distributed", *sys.argv[1:])
