"""Tests the Python API on GPU arrays, by the stand-in for CUDA's driver (standin/standin.h)."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import mpi_case
import pytest
from standin_path import ON_DEVICE, libcuda, libkernels

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "cupy_allreduce.py"
SEEDS = {ranks: int(os.environ.get("API_SEEDS", "1")) for ranks in (1, 2, 3)}


def variables(**more: str) -> dict[str, str]:
    """Returns variables for two GPUs with lagging streams; with TEST_GPU=device, real ones."""
    if ON_DEVICE:
        return {"RINGCOMM_CUDA_LIBRARY": "libcuda.so.1", "PYTHONPATH": str(HERE)} | more
    standin = {"RINGCOMM_CUDA_LIBRARY": libcuda(), "STANDIN_DEVICES": "2", "STANDIN_DELAY_US": "1000"}
    standin["STANDIN_KERNELS"] = libkernels()  # three ranks share GPUs, and use the kernels
    nccl = {"RINGCOMM_NCCL_LIBRARY": str(Path(libcuda()).with_name("libnccl.so.2"))}  # two ranks use NCCL
    return standin | nccl | {"PYTHONPATH": str(HERE)} | more


@pytest.mark.parametrize("ranks", [*(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (1, 2)), 3])
def test_api(ranks: int, tmp_path: Path) -> None:
    result = mpi_case.run(ranks, in_cases, SEEDS[ranks], str(tmp_path), variables=variables(), alone=True)
    assert f"{ranks} ranks, arrays of " in result.text
    assert "# allreduce sum on cuda, route " in result.text


def in_cases(seeds: int, folder: str) -> None:
    import api_cases

    api_cases.run(seeds, folder, str(EXAMPLE))


def test_without_a_gpu(tmp_path: Path) -> None:
    """Tests the import without GPU, errors for the missing driver, and the example."""
    nothing = {"RINGCOMM_CUDA_LIBRARY": str(tmp_path / "libcuda.so.1"), "PYTHONPATH": str(HERE)}
    result = mpi_case.start(0, no_driver, variables=nothing)
    assert result.status == 0, result.text
    result = mpi_case.start(0, run_example, variables=nothing)
    assert result.status == 0 and "needs NVIDIA's driver" in result.text, result.text


def no_driver() -> None:
    import sys

    import numpy as np

    import ringcomm

    assert "cupy" not in sys.modules
    comm = ringcomm.Communicator()
    with pytest.raises(ringcomm.UnsupportedError, match="need NVIDIA's driver"):
        comm.empty(3, device="cuda")

    class Array:
        __cuda_array_interface__ = {"version": 3, "shape": (3,), "typestr": "<f4", "data": (4096, False)}  # noqa: RUF012

    for call in (comm.allreduce, comm.irecv):
        with pytest.raises(ringcomm.UnsupportedError, match="need NVIDIA's driver"):
            call(Array())
    assert comm.allreduce(np.ones(2)).tolist() == [1, 1]
    comm.close()


def run_example() -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
