"""Where the stand-in is built, and processes that use it."""

import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from standin import build

HERE = Path(__file__).resolve().parent


@functools.cache
def folder() -> Path:
    """STANDIN_BUILD says where (build/standin)."""
    return build.build(os.environ.get("STANDIN_BUILD", HERE.parents[2] / "build" / "standin"))


def start(program: str, device: int = 0, **environment: object) -> subprocess.Popen:
    """A process that has `driver`; its output is the caller's to read."""
    opening = f"import ctypes, sys; sys.path.insert(0, {str(HERE.parent)!r})\nfrom standin.driver import *\n"
    opening += f"driver = Driver({str(folder())!r}, {device})\n"
    variables = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", opening + textwrap.dedent(program)]
    return subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def run(program: str, **environment: object) -> tuple[int, str, str]:
    with start(program, **environment) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err
