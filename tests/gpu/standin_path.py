"""Where the stand-in for the CUDA driver is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from standin.processes import folder

HERE = Path(__file__).resolve().parent


def libcuda() -> str:
    """The path of the stand-in's libcuda.so.1, built where it is missing or old."""
    return str(folder() / "libcuda.so.1")


def libkernels() -> str:
    """The path of the C++ form of our kernels, built where it is missing or old."""
    found = importlib.util.spec_from_file_location("kernels_build", HERE / "kernels" / "build.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return str(module.build())
