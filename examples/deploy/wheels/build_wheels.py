"""Builds wheels that run on any Linux with glibc 2.28 or later, and the source archive.

    python examples/deploy/wheels/build_wheels.py python3.10 python3.11 python3.12

The compiler is that of the package ziglang, which contains a C++ library and stubs of an old glibc.
It compiles the C++ core once for each processor, and Cython's unit for each Python. auditwheel
checks which systems a wheel runs on. binutils' objcopy for that processor moves debug symbols to a
folder next to the wheels. `make wheels` runs this script.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TOOLCHAIN = Path(__file__).with_name("zig.cmake")
GLIBC = "2.28"

# auditwheel checks only wheels for the processor that it runs on; here `machine` replaces that one.
AUDIT = """
import platform, sys
machine = sys.argv.pop(1)
platform.machine = lambda: machine
from auditwheel.main import main
sys.exit(main())
"""


def run(*command: object, **settings: str) -> str:
    """Returns the standard output of `command`, which runs with `settings` in its environment."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}).stdout


def compiler(machine: str) -> dict[str, str]:
    """Returns the variables that zig.cmake reads."""
    import ziglang

    return {"ZIG": str(Path(ziglang.__file__).with_name("zig")), "ZIG_TARGET": f"{machine}-linux-gnu.{GLIBC}"}


def target(python: str, machine: str) -> dict[str, str]:
    """Returns variables that set file names for another processor; empty for this machine's."""
    tag, own = run(
        python, "-c", "import platform, sysconfig; print(sysconfig.get_config_var('SOABI'), platform.machine())"
    ).split()
    if machine == own:
        return {}
    suffix = f".{'-'.join(tag.split('-')[:2])}-{machine}-linux-gnu.so"
    return {"_PYTHON_HOST_PLATFORM": f"linux-{machine}", "SETUPTOOLS_EXT_SUFFIX": suffix}


def build_core(machine: str) -> Path:
    """Builds the core's library, which all Pythons use, in build/. Compiles only changed files."""
    folder = ROOT / "build" / "wheels" / machine
    settings = compiler(machine)
    run(
        *("cmake", "-G", "Ninja", "-S", ROOT / "csrc", "-B", folder, "-DRINGCOMM_EXTENSION=OFF"),
        *(f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}", "-DCMAKE_CXX_FLAGS=-g1"),
        **settings,
    )
    run("cmake", "--build", folder, **settings)
    return folder / "libringcomm_core.a"


def build(python: str, machine: str, core: Path, folder: Path) -> Path:
    """Builds the wheel by CMake in `folder`, and returns its path."""
    command: list[object] = [sys.executable, "-m", "pip", "--python", python, "wheel", "--quiet", "--no-deps"]
    # Debian's Python.h includes a header by its path below /usr/include, which this compiler does
    # not search.
    headers = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))").strip()).parent
    flags = f"-g1 -idirafter {headers}"
    for define in (f"CMAKE_TOOLCHAIN_FILE={TOOLCHAIN}", f"CMAKE_CXX_FLAGS={flags}", f"RINGCOMM_CORE={core}"):
        command += ["-C", f"cmake.define.{define}"]
    command += ["-C", "install.strip=false", "-C", f"build-dir={folder / 'build'}", "--wheel-dir", folder, ROOT]
    run(*command, **compiler(machine), **target(python, machine))
    return next(folder.glob("*.whl"))


def split_symbols(library: Path, machine: str, kept: Path) -> None:
    """Moves the debug symbols of `library` to `kept`, where debuggers find them by name."""
    objcopy = f"{machine}-linux-gnu-objcopy"
    symbols = kept / f"{library.name}.debug"
    kept.mkdir(parents=True, exist_ok=True)
    run(objcopy, "--only-keep-debug", library, symbols)
    run(objcopy, "--strip-unneeded", f"--add-gnu-debuglink={symbols}", library)


def finish(wheel: Path, machine: str, output: Path) -> None:
    """Strips the wheel, and tags it by its oldest glibc. Fails if it needs a newer one."""
    with tempfile.TemporaryDirectory() as there:
        run(sys.executable, "-m", "wheel", "unpack", "--dest", there, wheel)
        content = next(Path(there).iterdir())
        split_symbols(next(content.glob("ringcomm/_src/core/_core*.so")), machine, output / "symbols")
        wheel.unlink()
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, content)
    platform = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    run(sys.executable, "-c", AUDIT, machine, "repair", "--plat", platform, "--only-plat", "-w", output, wheel)


def interpreter(name: str) -> str:
    """Returns the interpreter's path, which pip needs. Raises ValueError if there is none."""
    if found := shutil.which(name):
        return found
    raise ValueError


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "pythons", nargs="+", type=interpreter, metavar="PYTHON", help="interpreters; they need no packages"
    )
    parser.add_argument("--machines", default="x86_64", help="processors, such as 'x86_64 aarch64'")
    parser.add_argument("--output", type=Path, default=Path("dist/wheels"), help="folder for the results")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)

    def timed(what: str, begun: float) -> None:
        print(f"{what}: {time.monotonic() - begun:.0f} s", flush=True)

    for machine in options.machines.split():
        begun = time.monotonic()
        core = build_core(machine)
        timed(f"core for {machine}", begun)
        for python in options.pythons:
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as there:
                finish(build(python, machine, core, Path(there)), machine, options.output)
            timed(f"{python} for {machine}", begun)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", options.output, ROOT)
    for made in sorted([*options.output.glob("*.whl"), *options.output.glob("*.tar.gz")]):
        print(f"{made}  {made.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
