"""Builds the stand-in: `python build.py FOLDER`, or `build(folder)`; nothing is done where the sources have not changed."""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c++20", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
CUDA, NCCL = "libcuda.so.1", "libnccl.so.2"


def _sources() -> list[Path]:
    return sorted([*HERE.glob("*.cpp"), *HERE.glob("*.hpp"), *HERE.glob("*.h")])


def _digest(flags: list[str]) -> str:
    digest = hashlib.sha256(" ".join(flags).encode())
    for path in _sources():
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _compile(compiler: str, flags: list[str], files: list[Path], target: Path, *link: str) -> None:
    fresh = target.with_name(target.name + ".new")
    subprocess.run([compiler, *flags, f"-Wl,-soname,{target.name}", "-o", fresh, *files, *link, "-ldl"], check=True)
    fresh.rename(target)  # whoever has the old one loaded keeps it


def build(folder: str | os.PathLike[str], extra_flags: tuple[str, ...] = ()) -> Path:
    """Makes libcuda.so.1 and libnccl.so.2 in `folder`, which it returns. Processes may call it at the same time."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CXX", "g++")
    flags = [*FLAGS, *extra_flags]
    stamp, digest = target / "standin.sha256", _digest([compiler, *flags])
    with open(target / "standin.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest:
            return target
        nccl = [path for path in HERE.glob("nccl*.cpp")]
        cuda = [path for path in HERE.glob("*.cpp") if path not in nccl]
        _compile(compiler, flags, cuda, target / CUDA)
        if nccl:
            _compile(compiler, flags, nccl, target / NCCL, f"-L{target}", f"-l:{CUDA}", "-Wl,-rpath,$ORIGIN")
        stamp.write_text(digest)
    return target


if __name__ == "__main__":
    print(build(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[2] / "build" / "standin"))
