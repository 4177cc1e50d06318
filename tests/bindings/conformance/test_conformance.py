"""The API of horovod.torch 0.28, with its errors, on 2, 3 and 4 ranks, in a job each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "torch"
sys.path.insert(0, str(CASES))
import mpi_case  # noqa: E402
from run_cases import run_cases  # noqa: E402

MODULES = sorted(path.stem for path in HERE.glob("cases_*.py"))
ELSEWHERE = ["cases_adasum", "cases_join"]  # test_torch_cases.py runs them, on fewer ranks


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)])
def test_conformance(ranks: int) -> None:
    path = os.pathsep.join([str(HERE), str(CASES), os.environ.get("PYTHONPATH", "")])
    modules = MODULES + (ELSEWHERE if ranks > 3 else [])
    result = mpi_case.run(ranks, run_cases, ",".join(modules), limit=280, variables={"PYTHONPATH": path})
    (line,) = result.lines("passed ")
    assert line.endswith(f"cases on {ranks} ranks") and int(line.split()[1]) > 5 * len(modules)
