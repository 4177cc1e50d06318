"""Runs a test module's function on MPI ranks, with a time limit; no process may outlive it.

    def program(count):  # at the top level of the test module
        import ringcomm
        ...

    mpi_case.run(3, program, 10)  # on 3 ranks, which run other cases too; raises if it fails
    mpi_case.run(3, program, 10, alone=True)  # in a separate job, to test its start or end
    mpi_case.start(3, program, 10)  # in a separate job that may fail: see its status and text

`run` shuts ringcomm down after `program` and restores `variables`; a program must not change its
process otherwise.
"""

from __future__ import annotations

import ast
import contextlib
import os
import runpy
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from launching import LAUNCHER, environment
from mpi_pool import JOB, Pool

_pools: dict[tuple[int, str], Pool] = {}


@dataclass
class Result:
    status: int
    text: str  # standard output and error of all ranks and the launcher
    seconds: float
    left_behind: list[str]  # processes of the job that outlived the launcher
    output: str = ""  # standard output alone, of a case that shared its job

    def lines(self, prefix: str) -> list[str]:
        return [line for line in self.text.splitlines() if line.startswith(prefix)]


def start(
    size: int, program: Callable[..., Any], *arguments: Any, limit: float = 120, variables: dict[str, str] | None = None
) -> Result:
    """Starts a separate job (`size` 0: without a launcher). Fails after `limit` seconds."""
    job = uuid.uuid4().hex
    launch = [str(LAUNCHER), "-n", str(size)] if size else []
    command = [
        *launch,
        sys.executable,
        __file__,
        sys.modules[program.__module__].__file__ or "",
        program.__name__,
        repr(arguments),
    ]
    variables = dict(variables or {})
    if "PYTHONPATH" in variables:  # prepended to the variable's value
        variables["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
    begun = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parent,
        env=environment() | {JOB: job, "PYTHONFAULTHANDLER": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        left = _end(job, process)
        text, _ = process.communicate()
        raise AssertionError(f"not over after {limit} s; still there: {left}\n{text}") from None
    seconds = time.monotonic() - begun
    return Result(process.returncode, text, seconds, _end(job, process))


def run(
    size: int,
    program: Callable[..., Any],
    *arguments: Any,
    limit: float = 120,
    variables: dict[str, str] | None = None,
    alone: bool = False,
    leaves: bool = False,
    pool: str = "",
) -> Result:
    """Runs a case as `start` does, and fails unless it succeeds.

    `leaves`: ringcomm stays initialised for the next case, which saves 0.1 s. `pool`: the name of
    the jobs that run the case, for cases that import modules which other cases must not.
    """
    if not alone:
        return _run_in_pool((size, pool), program, arguments, limit, variables or {}, leaves)
    result = start(size, program, *arguments, limit=limit, variables=variables)
    assert result.status == 0, (
        f"{program.__name__}{arguments} on {size} ranks ended with {result.status}\n{result.text}"
    )
    assert not result.left_behind, result.left_behind
    return result


def _run_in_pool(
    key: tuple[int, str],
    program: Callable[..., Any],
    arguments: tuple[Any, ...],
    limit: float,
    variables: dict[str, str],
    leaves: bool,
) -> Result:
    if key not in _pools:
        _pools[key] = Pool(key[0])
    begun = time.monotonic()
    try:
        output, errors = _pools[key].run(program, arguments, variables, limit, leaves)
    except BaseException:
        pool = _pools.pop(key)
        _end(pool.job, pool.process)
        pool.close()
        raise
    return Result(0, output + errors, time.monotonic() - begun, [], output)


def output_of(arguments: Sequence[str | Path], folder: Path, ranks: int = 0) -> str:
    """Returns the output as `launching.output_of` does, but from a shared job."""
    return run(ranks, run_python, [str(one) for one in arguments], str(folder), limit=240).output


def run_python(arguments: list[str], folder: str) -> None:
    """Runs these arguments as the interpreter does: a script or -m module, and arguments."""
    before, sys.argv = (Path.cwd(), sys.argv), arguments[arguments[0] == "-m" :]
    os.chdir(folder)
    try:
        if arguments[0] == "-m":
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        os.chdir(before[0])
        sys.argv = before[1]


def close_pools(name: str | None = None) -> list[str]:
    """Ends the shared jobs, or those with this name. Returns a text for each job that ended badly."""
    wrong = []
    for size, called in [key for key in _pools if name in (None, key[1])]:
        pool = _pools.pop((size, called))
        wrong += [f"{size} ranks: {text}" for text in (pool.close(), *_end(pool.job, pool.process)) if text]
    return wrong


def _end(job: str, process: subprocess.Popen[str]) -> list[str]:
    """Waits a moment for a job's processes; kills the remaining ones and returns their names."""
    deadline = time.monotonic() + 2
    left = _members(job)
    while left and process.poll() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
        left = _members(job)
    names = []
    for one in left:
        with contextlib.suppress(psutil.Error):
            names.append(f"{one.pid} {' '.join(one.cmdline())[:100]} ({one.status()})")
            one.send_signal(signal.SIGKILL)
    return names


def _members(job: str) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get(JOB) == job and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def main() -> None:
    module, name, arguments = sys.argv[1:]
    sys.path.insert(0, str(Path(module).parent))
    getattr(__import__(Path(module).stem), name)(*ast.literal_eval(arguments))


def say(*words: Any) -> None:
    """Writes one line to standard output, in one write, so that ranks' lines do not mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


if __name__ == "__main__":
    # Writes each line in one write, because ranks share the file; PYTHONUNBUFFERED may be set.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    main()
