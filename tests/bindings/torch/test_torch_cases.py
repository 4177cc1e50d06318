"""Runs the cases of ringcomm.torch: in one process, and on ranks under mpiexec.

One job runs for each number of ranks, because importing torch takes longer than most cases.
"""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import mpi_case  # noqa: E402
from run_cases import run_cases  # noqa: E402

PATHS = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
MODULES = sorted(path.stem for path in HERE.glob("cases_*.py"))


@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=pytest.mark.slow), 3])
def test_cases(ranks: int) -> None:
    result = mpi_case.run(ranks, run_cases, ",".join(MODULES), limit=280, variables={"PYTHONPATH": PATHS})
    (line,) = result.lines("passed ")
    assert line.endswith(f"cases on {max(ranks, 1)} ranks")
    assert int(line.split()[1]) > 5 * len(MODULES)


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_cases_without_shared_memory(ranks: int) -> None:
    """As between hosts: messages access another rank's shard, and buckets run during backward."""
    modules = "cases_store,cases_relaxed_ends,cases_changes,cases_gradient_memory,cases_optimizer,cases_unusual"
    variables = {"PYTHONPATH": PATHS, "RINGCOMM_SHARED_MEMORY": "off"}
    result = mpi_case.run(ranks, run_cases, modules, limit=280, variables=variables)
    (line,) = result.lines("passed ")
    assert int(line.split()[1]) > 15
