"""Paths of the stand-in and its kernels, built if necessary; True if a GPU replaces it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from standin.processes import folder

HERE = Path(__file__).resolve().parent
ON_DEVICE = os.environ.get("TEST_GPU") == "device"  # tests run on the GPUs of this host, without the stand-in


def libcuda() -> str:
    """Returns the path of the stand-in's libcuda.so.1; builds it if it is missing or old."""
    return str(folder() / "libcuda.so.1")


def libkernels() -> str:
    """Returns the path of the C++ form of ringcomm's kernels; builds it if it is missing or old."""
    found = importlib.util.spec_from_file_location("kernels_build", HERE / "kernels" / "build.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return str(module.build())
