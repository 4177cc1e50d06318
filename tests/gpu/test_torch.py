"""Tests ringcomm.torch on the stand-in's torch device, or (TEST_GPU=device) on a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from standin_path import ON_DEVICE, libcuda, libkernels

pytest.importorskip("torch")

HERE = Path(__file__).resolve().parent
TORCH = HERE.parent / "bindings" / "torch"
sys.path.insert(0, str(TORCH))
import mpi_case  # noqa: E402
import test_torch_elastic  # noqa: E402
from run_cases import run_cases  # noqa: E402

VARIABLES = {
    "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), str(TORCH), os.environ.get("PYTHONPATH")))),
    "STANDIN_DELAY_US": "200",
    "OMP_NUM_THREADS": "1",
}


def variables() -> dict[str, str]:
    """Returns variables for the stand-in's device; with TEST_GPU=device, for real GPUs."""
    if ON_DEVICE:
        return VARIABLES | {"RINGCOMM_CUDA_LIBRARY": "libcuda.so.1"}
    return VARIABLES | {"RINGCOMM_CUDA_LIBRARY": libcuda(), "STANDIN_KERNELS": libkernels()}


@pytest.mark.parametrize(
    ("ranks", "modules"),
    [
        pytest.param(1, "ops", marks=pytest.mark.slow),
        pytest.param(2, "ops,training,packing,sparse,elastic,distributed,ddp", marks=pytest.mark.slow),
        pytest.param(3, "training", marks=pytest.mark.slow),
    ],
)
def test_cases(ranks: int, modules: str) -> None:
    """Runs one job for each number of ranks, because importing torch takes longer than most cases."""
    names = [f"cases_torch_{module}" for module in modules.split(",")]
    how = variables() | {"STANDIN_SEED": str(ranks)}
    result = mpi_case.run(ranks, run_cases, ",".join(names), limit=120, alone=True, variables=how)
    (line,) = result.lines("passed ")
    written = sum((HERE / f"{name}.py").read_text().count("\ndef case_") for name in names)
    assert line == f"passed {written} cases on {ranks} ranks"


@pytest.mark.slow
def test_a_rank_is_lost_in_an_elastic_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (variables() | {"DIGITS_DEVICE": "cuda" if ON_DEVICE else "standin"}).items():
        monkeypatch.setenv(name, value)
    test_torch_elastic.test_a_rank_is_lost_in_the_middle_of_an_epoch(tmp_path)
