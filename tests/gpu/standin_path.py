"""Where the stand-in for the CUDA driver is."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

HERE = Path(__file__).resolve().parent


def libcuda() -> str:
    """The path of the stand-in's libcuda.so.1, built where it is missing or old."""
    if given := os.environ.get("STANDIN_LIBCUDA"):
        return given
    found = importlib.util.spec_from_file_location("standin_build", HERE / "standin" / "build.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return str(module.build(HERE.parents[1] / "build" / "standin") / module.CUDA)
