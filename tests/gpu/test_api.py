"""The Python API on arrays of a GPU, by the stand-in for CUDA's driver (standin/standin.h)."""

from __future__ import annotations

from pathlib import Path

import mpi_case
import pytest
from standin_path import libcuda

HERE = Path(__file__).resolve().parent
SEEDS = {1: 2, 2: 2, 3: 1}  # by ranks


def variables(**more: str) -> dict[str, str]:
    """Of a job in which there are two GPUs whose streams lag."""
    standin = {"RINGCOMM_CUDA_LIBRARY": libcuda(), "STANDIN_DEVICES": "2", "STANDIN_DELAY_US": "1500"}
    return standin | {"PYTHONPATH": str(HERE)} | more


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", SEEDS)
def test_api(ranks: int) -> None:
    mpi_case.run(ranks, in_cases, SEEDS[ranks], variables=variables(), alone=True)


def in_cases(seeds: int) -> None:
    import api_cases

    api_cases.run(seeds)
