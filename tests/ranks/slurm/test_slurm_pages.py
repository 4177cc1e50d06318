"""Runs the job scripts of docs/slurm.md unchanged, and tries pairs of MPI and Slurm plugin.

WRITE_TABLES=1 writes the table of pairs into the page. It has the environment's own MPI, Debian's
MPIs if they are installed, and Intel's if INTEL_MPI_LIBRARY names its library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from elastic_program import replay
from launching import ROOT, environment
from slurm_cluster import Cluster
from tables import DEBIAN, loaded, write_rows

from ringcomm._src.launch.lines import srun_plugin
from ringcomm._src.launch.mpi import OPEN_MPI, find

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/slurm.md"
BLOCKS = re.findall(r"```sh[^\n]*\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)
OPEN = find().family == OPEN_MPI
HERE = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
INTEL = os.environ.get("INTEL_MPI_LIBRARY", "")

TRAIN = """
import numpy, ringcomm
ringcomm.init()
total = ringcomm.allreduce(numpy.ones(1), op=ringcomm.Sum)[0]
print(f"rank {ringcomm.rank()} sum {total}\\n", end="", flush=True)
"""

TRAIN_TORCH = """
import sys, torch, torch.distributed as dist
dist.init_process_group("ringcomm")
total = torch.ones(1)
dist.all_reduce(total)
sys.stdout.write(f"rank {dist.get_rank()} sum {total.item()}\\n")
dist.destroy_process_group()
"""


def block(words: str) -> str:
    (found,) = (text for text in BLOCKS if words in text)
    return found


def submit(cluster: Cluster, script: str, *flags: str, program: str = TRAIN) -> Callable[[], str]:
    """Submits a job. Returns a function that reads its output."""
    folder = cluster.folder
    for file in folder.glob("output*"):
        file.unlink()
    shutil.rmtree(folder / "snapshots", ignore_errors=True)
    (folder / "train.py").write_text(program)
    (folder / "job.sh").write_text(script)
    done = cluster.run(["sbatch", "-o", "output.%j", *flags, "job.sh"], environment() | HERE, limit=120)
    assert done.returncode == 0, done.stdout
    return lambda: "".join(file.read_text() for file in sorted(folder.glob("output.*")))


@pytest.mark.parametrize("words", ["mpiexec python", "ringrun python", "--mpi=pmix" if OPEN else "--mpi=pmi2"])
def test_scripts(cluster, words):
    printed = submit(cluster, block(words), "--wait")()
    assert printed.count("sum 4.0") == 4, printed


def test_an_array_of_jobs_on_one_node(cluster):
    printed = submit(cluster, block("--array"), "--wait", "--nodelist=n1")()
    assert printed.count("sum 2.0") == 4, printed


@pytest.mark.skipif(OPEN, reason="Open MPI's ranks need its own launcher")
def test_torchrun(cluster):
    printed = submit(cluster, block("torchrun"), "--wait", program=TRAIN_TORCH)()
    assert printed.count("sum 4.0") == 4, printed


def elastic(cluster: Cluster, script: str, steps: int = 60, *flags: str) -> Callable[[], str]:
    text = (ROOT / "tests/support/elastic_program.py").read_text()
    return submit(cluster, script.replace("train.py", f"train.py {steps} 0.1"), *flags, program=text)


def until(read: Callable[[], str], words: str, limit: float = 120) -> str:
    deadline = time.monotonic() + limit
    while words not in (printed := read()):
        assert time.monotonic() < deadline, printed
        time.sleep(0.2)
    return printed


def check_training(printed: str, steps: int = 60) -> list[list[int]]:
    (line,) = (text for text in printed.splitlines() if '"weights"' in text)
    result = json.loads(line[line.index("{") :])
    assert result["weights"] == replay(result["history"], steps), printed
    return result["history"]


@pytest.mark.parametrize("how", ["signal", "limit"])
def test_a_time_limit_and_a_requeue(cluster, how):
    """Stops and requeues a job. Slurm may send its signal up to a minute early."""
    steps, flags = (60, ()) if how == "signal" else (500, ("--time=1", "--signal=B:TERM@15"))
    read = elastic(cluster, block("--requeue"), steps, *flags)
    until(read, "training 1 2 0")
    (job,) = cluster.run(["squeue", "-h", "-o", "%A"]).stdout.split()
    if how == "signal":
        time.sleep(2)
        cluster.run(["scancel", "--batch", "--signal=TERM", job])

    def read_and_start() -> str:
        """Starts the requeued job, as Slurm would after two minutes, and reads its output."""
        if "PENDING" in cluster.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout:
            cluster.run(["scontrol", "update", f"JobId={job}", "StartTime=now"])
        return read()

    history = check_training(until(read_and_start, '"weights"', 200), steps)
    assert len(history) > 1 and {size for _, size, _ in history} == {2} and history[-1][2] > 5


def test_a_node_that_is_lost(cluster):
    read = elastic(cluster, block("--no-kill"))
    until(read, "training 1 3 0")
    time.sleep(1)
    cluster.lose(3)
    assert [size for _, size, _ in check_training(until(read, '"weights"'))] == [3, 2]


class Mpi(NamedTuple):
    name: str
    plugin: str
    variables: dict[str, str]


def installed(folder: Path) -> list[Mpi]:
    own = find()
    found = [Mpi(f"{own.vendor} {'.'.join(map(str, own.version))} (wheel)", srun_plugin(own), {})]
    for name, plugin, library in [
        ("MPICH of Debian 12", "pmi2", DEBIAN["mpich"]),
        ("Open MPI of Debian 12", "pmix", DEBIAN["openmpi"]),
        ("Intel MPI", "pmi2", Path(INTEL or "/none")),
    ]:
        if library.exists():
            (beside := folder / name).mkdir()
            found.append(Mpi(name, plugin, loaded(library, beside)))
    return found


def test_pairs(cluster, tmp_path):
    rows = []
    (cluster.folder / "train.py").write_text(TRAIN)
    for mpi in installed(tmp_path):
        cells = []
        for plugin in ("pmi2", "pmix", "none"):
            command = ["srun", f"--mpi={plugin}", "-N2", "-n3", sys.executable, "train.py"]
            done = cluster.run(command, environment() | mpi.variables)
            if plugin == mpi.plugin:
                assert done.returncode == 0 and done.stdout.count("sum 3.0") == 3, (mpi.name, done.stdout)
                cells.append("**runs**")
                continue
            launcher_error = "but MPI knows 1" in done.stdout
            assert done.returncode and " sum " not in done.stdout, done.stdout
            assert launcher_error or "MPI_Init" in done.stdout, done.stdout
            cells.append("ringcomm's error" if launcher_error else "error in `MPI_Init`")
        rows.append(f"| {mpi.name} | {' | '.join(cells)} |")
    print("\n".join(rows))
    if os.environ.get("WRITE_TABLES"):
        write_rows(PAGE, "pairs", rows)
