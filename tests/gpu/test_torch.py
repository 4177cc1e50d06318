"""ringcomm.torch on the stand-in's torch device, alone and on ranks under mpiexec."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from standin_path import libcuda, libkernels

pytest.importorskip("torch")

HERE = Path(__file__).resolve().parent
TORCH = HERE.parent / "torch"
sys.path[:0] = [str(HERE.parent), str(TORCH)]
import mpi_case  # noqa: E402
from run_cases import run_cases  # noqa: E402


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "modules"),
    [
        pytest.param(1, "ops", marks=pytest.mark.slow),
        (2, "ops,training,packing,sparse,elastic,distributed,ddp"),
        pytest.param(3, "training", marks=pytest.mark.slow),
    ],
)
def test_cases(ranks: int, modules: str) -> None:
    """One job for each number of ranks: importing torch takes longer than most cases."""
    names = [f"cases_torch_{module}" for module in modules.split(",")]
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), str(TORCH), os.environ.get("PYTHONPATH")))),
        "RINGCOMM_CUDA_LIBRARY": libcuda(),
        "STANDIN_KERNELS": libkernels(),
        "STANDIN_DELAY_US": "200",
        "STANDIN_SEED": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    result = mpi_case.run(ranks, run_cases, ",".join(names), limit=120, alone=True, variables=variables)
    (line,) = result.lines("passed ")
    written = sum((HERE / f"{name}.py").read_text().count("\ndef case_") for name in names)
    assert line == f"passed {written} cases on {ranks} ranks"
