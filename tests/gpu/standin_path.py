"""Where the stand-in for the CUDA driver is."""

from __future__ import annotations

from standin.processes import folder


def libcuda() -> str:
    """The path of the stand-in's libcuda.so.1, built where it is missing or old."""
    return str(folder() / "libcuda.so.1")
