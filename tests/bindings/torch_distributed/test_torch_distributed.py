"""The backend of torch.distributed on ranks under mpiexec: ringcomm's cases, and PyTorch's suite."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import launching  # noqa: E402
import mpi_case  # noqa: E402

from ringcomm._src.cli.timeline_files import read_records  # noqa: E402

PATHS = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))


CASES = "cases_distributed", "cases_shared_tensors"


def run_cases(wanted: str = "") -> None:
    """Runs the cases twice, because a group may be created again.

    A case that fails on one rank ends the job, because the other ranks would wait.
    """
    import torch.distributed as dist

    import ringcomm.torch.distributed

    cases = [
        (name, case)
        for module in CASES
        for name, case in vars(importlib.import_module(module)).items()
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


ALONE = """
import sys, torch, torch.distributed as dist
assert "ringcomm" not in sys.modules
dist.init_process_group("ringcomm")
dist.all_reduce(x := torch.ones(2))
sys.stdout.write(f"has {x[0]:g} of {dist.get_world_size()}\\n")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_torch_knows_the_backend_without_an_import(ranks: int) -> None:
    """The entry point of the installed ringcomm registers it."""
    launch = [str(launching.LAUNCHER), "-n", str(ranks)] if ranks else []
    environment = launching.environment()
    result = subprocess.run(
        [*launch, sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, timeout=100
    )
    assert result.stdout.splitlines() == [f"has {max(ranks, 1)} of {max(ranks, 1)}"] * max(ranks, 1), result


@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=pytest.mark.slow), 3])
def test_cases(ranks: int) -> None:
    variables = {"PYTHONPATH": PATHS}
    result = mpi_case.run(ranks, run_cases, limit=200, variables=variables)
    (line,) = result.lines("passed ")
    assert line.endswith(f"cases on {max(ranks, 1)} ranks")


def groups_beside_gloo(folder: str) -> None:
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    if rank < 2:  # torch calls the backend on members only
        with pytest.raises(RuntimeError, match=r"new_group.backend=.ringcomm.. of all of them first"):
            dist.new_group([0, 1], backend="ringcomm")
    else:
        dist.new_group([0, 1], backend="ringcomm")
    for members in (None, [0, 1]):
        group, x = dist.new_group(members, backend="ringcomm"), torch.ones(3)
        if members is None or rank in members:
            dist.all_reduce(x, group=group)
            assert x.tolist() == [len(members or range(size))] * 3
    dist.destroy_process_group()


def test_groups_where_the_default_group_is_of_another_backend(tmp_path: Path) -> None:
    mpi_case.run(3, groups_beside_gloo, str(tmp_path), limit=60, variables={"PYTHONPATH": PATHS}, alone=True)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
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
        mpi_case.say("told:", type(error).__name__)
        raise


@pytest.mark.parametrize("how", [pytest.param("exit", marks=pytest.mark.slow), "kill"])
def test_a_rank_that_ends_is_told(how: str) -> None:
    """A rank that ends without destroy_process_group is reported."""
    result = mpi_case.start(3, one_rank_ends, how, limit=60, variables={"PYTHONPATH": PATHS})
    assert result.status != 0 and not result.left_behind
    told = {line for line in result.text.splitlines() if line.startswith("told: ")}
    assert told <= {"told: RankLeftError", "told: PeerLostError"}
    assert told or "rank 1 of 3" in result.text  # a launcher may end the other ranks before they detect it


if __name__ == "__main__":  # by hand: mpiexec -n 2 python test_torch_distributed.py [part of a name]
    run_cases(*sys.argv[1:])


# ---- traces of its traffic -------------------------------------------------------------------------------------------
def traffic() -> None:
    import time

    import torch
    import torch.distributed as dist

    import ringcomm
    import ringcomm.torch.distributed

    dist.init_process_group(ringcomm.torch.distributed.NAME)
    rank, group = dist.get_rank(), dist.new_group([0, 1])
    name = group.getGroupName()
    for _ in range(3):
        dist.all_reduce(torch.ones(1000), group=group)
    works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    if rank == 1:
        time.sleep(1.3)
    if rank == 0:
        dist.recv(torch.ones(7), 1, group=group, tag=5)
    else:
        dist.send(torch.ones(7), 0, group=group, tag=5)
    if rank == 1:
        time.sleep(1.3)
    dist.barrier(group=group)
    assert group.stats().of("allreduce").calls == 5, group.stats()
    assert group.stats(reset=True).of("barrier").calls == 1 and group.stats().total.calls == 0
    assert ringcomm.stats().of("send" if rank else "recv").calls >= 1
    with pytest.raises(ringcomm.MismatchError):
        dist.all_reduce(torch.ones(3 + rank), group=group)
    mpi_case.say(f"group {name}")
    dist.destroy_process_group()


def test_a_groups_traffic_is_in_timeline_stats_and_stall_report_under_its_name(tmp_path: Path) -> None:
    variables = {
        "PYTHONPATH": PATHS,
        "RINGCOMM_STALL_WARN_SECONDS": "1",
        "RINGCOMM_TIMELINE": f"{tmp_path}/{{rank}}.json",
    }
    result = mpi_case.run(2, traffic, limit=60, variables=variables, alone=True)
    name = "process group " + result.lines("group ")[0].split()[1]
    lines = [re.sub(r"tag=\d+", "tag=T", line) for line in result.lines("ringcomm: rank 0 has been waiting")]
    assert any(line.endswith(f" s in recv(source=1, tag=T) in {name} of at most 28 bytes") for line in lines), lines
    assert any(f" s in the non-blocking call 'call 6 of {name}'; " in line for line in lines), lines
    assert any(line.endswith("rank 1 has not called it yet") for line in lines), lines
    for record in read_records([f"{tmp_path}/{rank}.json" for rank in range(2)]).values():
        assert [operation.name for operation in record.operations if operation.failed] == [f"call 7 of {name}"]
        assert not record.pending
    for rank, what in enumerate((f"receive from 1 in {name}", f"send to 0 in {name}")):
        events = json.loads((tmp_path / f"{rank}.json").read_text())
        rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        runs = [event for event in events if event.get("cat") == "run" and rows[event["tid"]] == name]
        assert [event["args"]["call"] for event in runs] == list(range(1, 7))
        (message,) = [event for event in events if event["name"] == what and event["ph"] == "b"]
        assert message["args"]["bytes"] == 28
