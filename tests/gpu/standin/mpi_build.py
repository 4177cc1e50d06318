"""Builds an MPI that accepts addresses of the stand-in's devices.

It is a library that is loaded before the real one, under its name.
"""

from __future__ import annotations

import fcntl
import functools
import re
import subprocess
import sys
from pathlib import Path

from standin import build, processes

SOURCE = build.HERE / "mpi" / "library.cpp"
_ASK = (
    "from ringcomm._src.platform.mpi_library import library_path, load_only; print(library_path(load_only().__file__))"
)


@functools.cache
def library() -> Path:
    """Returns the value for MPI4PY_LIBMPI."""
    cuda = processes.folder()
    asked = subprocess.run([sys.executable, "-c", _ASK], cwd=cuda, check=True, capture_output=True, text=True)
    real = Path(asked.stdout.strip())
    listed = subprocess.run(["readelf", "-d", real], check=True, capture_output=True, text=True)
    name = re.findall(r"\(SONAME\).*\[(.*)\]", listed.stdout)[0]
    made = cuda / "mpi" / name
    made.parent.mkdir(exist_ok=True)
    stamp = made.with_name(f"{name}.stamp")
    digest = build.digest_of(str(real), SOURCE.read_bytes())
    with open(made.with_name("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest:
            return made
        # A linker records a library's own name. So that this name is the real library's path, it
        # links to one named like that.
        named = made.with_name(f"{name}.real")
        subprocess.run(["g++", "-shared", f"-Wl,-soname,{real}", "-o", named, "-x", "c++", "/dev/null"], check=True)
        command = ["g++", *build.FLAGS, f"-I{build.HERE}", "-shared", f"-Wl,-soname,{name}", "-Wl,--no-as-needed"]
        libraries = [named, f"-L{cuda}", f"-l:{build.CUDA}", "-Wl,-rpath,$ORIGIN/.."]
        fresh = made.with_name(f"{name}.new")
        subprocess.run([*command, "-o", fresh, SOURCE, *libraries], check=True)
        fresh.rename(made)
        stamp.write_text(digest)
    return made


if __name__ == "__main__":
    print(library())
