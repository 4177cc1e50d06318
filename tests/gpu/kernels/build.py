"""Builds the kernels' C++ form: `python build.py [library]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KERNELS = ROOT / "csrc" / "device" / "kernels"
LIBRARY = ROOT / "build" / "gpu" / "libkernels_host.so"
SOURCES = [HERE / "host_form.cpp", HERE / "host_side.cpp", KERNELS / "launch.cpp"]
FLAGS = ["-std=c++20", "-O2", "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]


def build(library: Path = LIBRARY, compiler: str = "c++") -> Path:
    """The library, made anew if it is older than a source."""
    made_from = [*SOURCES, *KERNELS.iterdir(), Path(__file__)]
    if not library.exists() or library.stat().st_mtime < max(path.stat().st_mtime for path in made_from):
        library.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, *FLAGS, f"-I{ROOT / 'csrc'}", *map(str, SOURCES), "-o", str(library)], check=True)
    return library


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])))
