"""Builds the stand-in if sources have changed: `python build.py FOLDER`, `build(folder)`."""

import fcntl
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c++20", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
CUDA, NCCL = "libcuda.so.1", "libnccl.so.2"


def digest_of(*texts: str | bytes) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text if isinstance(text, bytes) else text.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _object(source: Path, command: list[str], headers: str, folder: Path) -> Path:
    """Returns a source's object file, named by a digest of its inputs; compiles it if missing."""
    made = folder / f"{source.stem}.{digest_of(' '.join(command), headers, source.read_bytes())[:16]}.o"
    if not made.exists():
        for old in folder.glob(f"{source.stem}.*.o"):
            old.unlink()
        subprocess.run([*command, "-c", source, "-o", made.with_suffix(".new")], check=True)
        made.with_suffix(".new").rename(made)
    return made


def build(folder: str | os.PathLike[str], extra_flags: tuple[str, ...] = ()) -> Path:
    """Builds libcuda.so.1 and libnccl.so.2 in `folder`, and returns it. Process-safe."""
    target = Path(folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    command = [os.environ.get("CXX", "g++"), *FLAGS, *extra_flags]
    headers = digest_of(*(path.read_bytes() for path in sorted(HERE.glob("*.h*"))))
    with open(target / "standin.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda path: _object(path, command, headers, target), sorted(HERE.glob("*.cpp"))))
        stamp, digest = target / "standin.stamp", digest_of(*(path.name for path in objects))
        if stamp.exists() and stamp.read_text() == digest:
            return target
        nccl = [path for path in objects if path.name.startswith("nccl")]
        for name, files in ((CUDA, [path for path in objects if path not in nccl]), (NCCL, nccl)):
            link = ["-ldl"] if name == CUDA else [f"-L{target}", f"-l:{CUDA}", "-Wl,-rpath,$ORIGIN"]
            fresh = target / f"{name}.new"
            subprocess.run([*command, "-shared", f"-Wl,-soname,{name}", "-o", fresh, *files, *link], check=True)
            fresh.rename(target / name)  # processes that have loaded the old library keep it
        stamp.write_text(digest)
    return target


if __name__ == "__main__":
    print(build(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[2] / "build" / "standin"))
