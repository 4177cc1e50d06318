"""Wheels that run on any Linux with glibc 2.28 or later, for several Pythons and processors, from one machine.

    python examples/deploy/wheels/build_wheels.py --output dist/wheels python3.10 python3.11 python3.12

Each Python that is named builds its own, by pip in an environment of pip's. Needs the packages ziglang, whose compiler
brings its own C++ library and stubs of an old glibc, and auditwheel, which checks what the result asks of a machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ziglang

ROOT = Path(__file__).resolve().parents[3]
TOOLCHAIN = Path(__file__).with_name("zig.cmake")
ZIG = Path(ziglang.__file__).with_name("zig")
GLIBC = "2.28"


def facts(python: str) -> tuple[str, str]:
    """ "cpython-311", "x86_64" """
    program = "import platform, sysconfig; print(sysconfig.get_config_var('SOABI'), platform.machine())"
    soabi, machine = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    return "-".join(soabi.split("-")[:2]), machine


def environment(tag: str, machine: str, native: bool) -> dict[str, str]:
    """For pip: what compiles, and, for another processor, what the result is called."""
    settings = {"ZIG": str(ZIG), "ZIG_TARGET": f"{machine}-linux-gnu.{GLIBC}"}
    if not native:
        settings["_PYTHON_HOST_PLATFORM"] = f"linux-{machine}"
        settings["SETUPTOOLS_EXT_SUFFIX"] = f".{tag}-{machine}-linux-gnu.so"
    return {**os.environ, **settings}


def build(python: str, machine: str, folder: Path) -> Path:
    """The wheel as CMake makes it, in `folder`."""
    tag, own_machine = facts(python)
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    for define in (f"CMAKE_TOOLCHAIN_FILE={TOOLCHAIN}", "CMAKE_MODULE_LINKER_FLAGS=-s"):
        command += ["-C", f"cmake.define.{define}"]
    command += ["-C", "install.strip=false", "-C", f"build-dir={folder / 'build'}"]
    subprocess.run(command, check=True, env=environment(tag, machine, machine == own_machine))
    return next(folder.glob("*.whl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="interpreters, each with pip")
    parser.add_argument("--machines", default="x86_64,aarch64", help="processors, by commas")
    parser.add_argument("--output", type=Path, default=Path("dist/wheels"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for python in options.pythons:
        for machine in options.machines.split(","):
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as there:
                wheel = build(python, machine, Path(there))
                platform = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
                command = ["repair", "--plat", platform, "--only-plat", "--wheel-dir", str(options.output), str(wheel)]
                subprocess.run([sys.executable, "-m", "auditwheel", *command], check=True)
            print(f"{python}, {machine}: {time.monotonic() - begun:.0f} s", flush=True)
    for wheel in sorted(options.output.glob("*.whl")):
        print(f"{wheel}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
