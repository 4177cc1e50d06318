"""Jobs under a real Slurm: ranks that MPI does not know, ranks that die, nodes that fail."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elastic_program import replay
from launching import ROOT, environment
from namespaces import NETMODS
from slurm_cluster import Cluster
from test_hosts import CASES, check_ends, program_on

from ringcomm._src.launch.lines import srun_plugin
from ringcomm._src.launch.mpi import OPEN_MPI, find

OPEN = find().family == OPEN_MPI
PMI = f"--mpi={srun_plugin(find())}"

PROGRAM = ROOT / "tests" / "support" / "elastic_program.py"

SCRIPT = """
import os, signal, sys, time, numpy, ringcomm
ringcomm.init()
total = ringcomm.allreduce(numpy.ones(1), op=ringcomm.Sum)[0]
print(f"rank {ringcomm.rank()} sum {total}\\n", end="", flush=True)
if sys.argv[1] == "kill":
    if ringcomm.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(100)
if sys.argv[1] == "wait":
    if ringcomm.rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    ringcomm.communicator().barrier()
"""


def srun(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    *flags, what = words
    (cluster.folder / "script.py").write_text(SCRIPT)
    return cluster.run(["srun", *flags, sys.executable, "script.py", what], environment())


def test_srun_without_a_pmi_that_fits(cluster):
    done = srun(cluster, "-N2", "-n3", "once")
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("Slurm's srun has started 3 ranks (SLURM_STEP_NUM_TASKS), but MPI knows 1") == 3
    assert f"srun {PMI}" in done.stdout and " sum " not in done.stdout


def test_srun_with_its_plugin_on_two_nodes(cluster):
    done = srun(cluster, PMI, "-N2", "-n3", "once")
    assert done.returncode == 0 and done.stdout.count("sum 3.0") == 3, done.stdout


@pytest.mark.parametrize(("nodes", "ranks"), [(2, 2), pytest.param(3, 4, marks=pytest.mark.slow)])
def test_every_kind_of_traffic(cluster, tmp_path, nodes, ranks):
    """Uses libfabric: on UCX, MPICH 5.0.2 fails under Slurm's pmi2 (docs/troubleshooting.md)."""
    words = ["srun", PMI, f"-N{nodes}", f"-n{ranks}", *program_on(tmp_path)]
    check_ends(tmp_path, ranks, cluster.run(words, environment() | NETMODS["ofi"], limit=200))


@pytest.mark.slow
@pytest.mark.skipif(OPEN, reason="tests a fault of MPICH on UCX")
def test_every_kind_of_traffic_on_ucx(cluster, tmp_path):
    """Ignores jobs in which MPI_Init hangs or aborts: this is a fault of MPICH."""
    for case in CASES:
        for attempt in range(5):
            folder = tmp_path / f"{case}{attempt}"
            folder.mkdir()
            try:
                done = cluster.run(["srun", PMI, "-N2", "-n2", *program_on(folder, [case])], environment())
            except AssertionError:
                assert not list(folder.glob("*.begun")), f"{case} hangs after MPI_Init"
                continue
            if done.returncode == 0 or list(folder.glob("*.begun")):
                check_ends(folder, 2, done)
                break


def test_a_batch_script_is_one_rank(cluster):
    (cluster.folder / "batch").write_text(f"#!/bin/sh\nexec {sys.executable} script.py once\n")
    done = cluster.run(["sbatch", "--wait", "-n4", "-o", "output", "batch"], environment())
    printed = (cluster.folder / "output").read_text()
    assert done.returncode == 0 and printed.count("sum 1.0") == 1, printed


@pytest.mark.parametrize("flags, what", [
    (("-N1", "-n2"), "wait"),
    pytest.param(("-N1", "-n2"), "kill", marks=pytest.mark.slow),
    pytest.param(("-N2", "-n2"), "kill", marks=pytest.mark.slow),
    pytest.param(("-N2", "-n3"), "wait", marks=pytest.mark.slow),
    pytest.param(("-N2", "-n2", "--kill-on-bad-exit"), "kill", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_killed_rank_is_named_and_ends_the_step(cluster, flags, what):
    done = srun(cluster, PMI, *flags, what)
    assert done.returncode > 0 and "ringcomm: rank 1 of " in done.stdout and "has died" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["cgroup"], indirect=True)
@pytest.mark.skipif(not Path("/sys/fs/cgroup/freezer").is_dir(), reason="this host has no control groups of version 1")
def test_a_rank_killed_where_slurm_tracks_control_groups(cluster):
    for flags, what in [(("-N1", "-n2"), "kill"), (("-N2", "-n3"), "wait")]:
        done = srun(cluster, PMI, *flags, what)
        assert done.returncode > 0 and "ringcomm: rank 1 of " in done.stdout and "has died" in done.stdout, done.stdout


@pytest.mark.slow
def test_an_elastic_job_goes_on_without_a_node(cluster):
    ringrun = f"{sys.executable} -m ringcomm run -np 3 --min-np 2"
    (cluster.folder / "elastic").write_text(f"#!/bin/sh\nexec {ringrun} {sys.executable} {PROGRAM} 100 0.1\n")
    output = cluster.folder / "elastic.out"
    begin = ["sbatch", "--no-kill", "-N3", "-n3", "--ntasks-per-node=1", "-o", str(output), "elastic"]
    assert cluster.run(begin, environment()).returncode == 0
    lost, deadline = False, time.monotonic() + 120
    while "weights" not in (printed := output.read_text() if output.exists() else ""):
        assert time.monotonic() < deadline, printed
        if "training 1 3 0" in printed and not lost:
            time.sleep(1)
            cluster.lose(3)
            lost = True
        time.sleep(0.2)
    (line,) = (text for text in printed.splitlines() if "weights" in text)
    result = json.loads(line[line.index("{") :])
    assert [size for _, size, _ in result["history"]] == [3, 2], printed
    assert result["weights"] == replay(result["history"], 100)
