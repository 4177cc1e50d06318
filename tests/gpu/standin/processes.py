"""Processes that use the stand-in, and the folder in which it is built."""

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
    """Returns the folder with the built stand-in: STANDIN_BUILD, or build/standin."""
    return build.build(os.environ.get("STANDIN_BUILD", HERE.parents[2] / "build" / "standin"))


def start(program: str, device: int = 0, **environment: object) -> subprocess.Popen:
    """Starts a process that has `driver`; the caller reads its output."""
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
