"""Builds the kernels' C++ form: `python build.py [library]`."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KERNELS = ROOT / "csrc" / "device" / "kernels"
LIBRARY = ROOT / "build" / "gpu" / "libkernels_host.so"
PTX_LIBRARY = LIBRARY.with_name("libkernels_ptx.so")
SOURCES = [HERE / "host_form.cpp", HERE / "host_side.cpp", KERNELS / "launch.cpp"]
FLAGS = ["-std=c++20", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
C_FLAGS = ["-O1", "-w", "-fPIC", "-ffp-contract=off"]


def is_older(library: Path, sources: list[Path]) -> bool:
    return not library.exists() or library.stat().st_mtime < max(path.stat().st_mtime for path in sources)


def compile_all(library: Path, *words: str) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(f".{os.getpid()}")  # no process loads an incomplete library
    subprocess.run([*words, "-o", str(unfinished)], check=True)
    unfinished.replace(library)


def build(library: Path = LIBRARY) -> Path:
    """Returns the library's path; rebuilds the library if it is older than a source."""
    if is_older(library, [*SOURCES, *KERNELS.iterdir(), Path(__file__)]):
        compile_all(library, "c++", *FLAGS, f"-I{ROOT / 'csrc'}", *map(str, SOURCES))
    return library


def build_from_ptx(library: Path = PTX_LIBRARY) -> Path:
    """Builds the same library from the PTX in the package, by way of C."""
    import ptx_as_c

    modules = sorted((ROOT / "ringcomm" / "device").glob("kernels_*.ptx.z"))
    if not is_older(library, [*SOURCES, *modules, Path(ptx_as_c.__file__), Path(__file__)]):
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    objects = []
    for module in modules:
        code, made = library.with_name(f"{module.stem}.c"), library.with_name(f"{module.stem}.o")
        code.write_text(ptx_as_c.as_c(zlib.decompress(module.read_bytes()).decode()))
        subprocess.run(["cc", *C_FLAGS, "-c", str(code), "-o", str(made)], check=True)
        objects.append(str(made))
    compile_all(library, "c++", *FLAGS, f"-I{ROOT / 'csrc'}", *map(str, SOURCES[1:]), *objects)
    return library


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:])))
