"""Jobs of the test session, one for each number of ranks, which run one case after another.

Starting Python, MPI and torch on every rank takes longer than most cases. A rank receives a case
through a socket, and writes the output to files of that case. A case that fails on any rank ends
the job, because the other ranks may wait for that rank for ever. The next case gets a new job.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launching import LAUNCHER, environment

JOB = "RINGCOMM_TEST_JOB"  # in the environment of every process of a job
STARTING = 60.0  # seconds for all ranks of a job to connect
OTHERS = 3.0  # seconds in which ranks may report another rank's failure


@dataclass
class Case:
    module: str
    function: str
    arguments: tuple[Any, ...]
    folder: str  # folder of the module
    variables: dict[str, str]
    output: str  # the file of standard output; standard errors go to the file of this name with .err appended
    limit: float
    leaves: bool  # True: ringcomm stays initialised, for hundreds of short cases


class Pool:
    """One job. If `size` is 0, it is one process without a launcher."""

    def __init__(self, size: int) -> None:
        self.job = uuid.uuid4().hex
        self.folder = tempfile.TemporaryDirectory(prefix="ringcomm-tests-")
        self.output = Path(self.folder.name, "output")
        address = str(Path(self.folder.name, "socket"))
        launch = [str(LAUNCHER), "-n", str(size)] if size else []
        with socket.socket(socket.AF_UNIX) as listener, self.output.open("wb") as output:
            listener.bind(address)
            listener.listen(size + 1)
            listener.settimeout(STARTING)
            self.process = subprocess.Popen(
                [*launch, sys.executable, __file__, address],
                cwd=Path(__file__).parent,
                env=environment() | {JOB: self.job, "PYTHONFAULTHANDLER": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                self.ranks = [listener.accept()[0] for _ in range(max(size, 1))]
            except TimeoutError:
                self.process.kill()
                raise AssertionError(f"{size} ranks do not start\n{self.output.read_text()}") from None

    def run(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        variables: dict[str, str],
        limit: float,
        leaves: bool = False,
    ) -> tuple[str, str]:
        """Runs a case; returns standard output and errors of all ranks.

        If a rank failed or timed out, raises, and the caller must end the job.
        """
        path = Path(self.folder.name, "case")
        errors = path.with_suffix(".err")
        path.write_bytes(b"")
        errors.write_bytes(b"")
        folder = str(Path(sys.modules[function.__module__].__file__ or "").resolve().parent)
        case = Case(function.__module__, function.__name__, arguments, folder, variables, str(path), limit, leaves)
        for rank in self.ranks:
            with contextlib.suppress(OSError):  # the rank died; its answer shows that
                rank.sendall(pickle.dumps(case))
        answers = self._answers(limit)
        text, told = (file.read_text(errors="replace") for file in (path, errors))
        if answers != "." * len(self.ranks):
            what = {"?": f"not done after {limit} s", "x": "failed", "!": "died", ".": "done"}
            said = ", ".join(f"rank {rank} {what[answer]}" for rank, answer in enumerate(answers))
            printed = "\n".join([text, told, self.output.read_text(errors="replace")])
            raise AssertionError(f"{function.__name__}{arguments} on {len(self.ranks)} ranks: {said}\n{printed}")
        return text, told

    def _answers(self, limit: float) -> str:
        """Returns one character per rank: . done, x failed, ! died, ? no answer."""
        answers = ["?"] * len(self.ranks)
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as waiting:
            for rank, link in enumerate(self.ranks):
                waiting.register(link, selectors.EVENT_READ, rank)
            while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in waiting.select(left):
                    try:
                        answers[key.data] = key.fileobj.recv(1).decode() or "!"  # type: ignore[union-attr]
                    except OSError:
                        answers[key.data] = "!"
                    waiting.unregister(key.fileobj)
                    if answers[key.data] != ".":
                        deadline = min(deadline, time.monotonic() + OTHERS)
        return "".join(answers)

    def close(self) -> str:
        """Ends the job by closing the sockets. Returns the last output of ranks that fail."""
        for rank in self.ranks:
            rank.close()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            status = -1
        text = self.output.read_text(errors="replace")
        self.folder.cleanup()
        return "" if status == 0 else f"the job ended with {status}\n{text}"


# ---- on a rank -------------------------------------------------------------------------------------------------------
def work(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        cases = link.makefile("rb")
        left = False
        while True:
            try:
                case = pickle.load(cases)
            except (EOFError, OSError):
                return
            if left and not case.leaves:
                _shut_down()
            left = case.leaves
            link.sendall(b"." if _done(case) else b"x")


def _shut_down() -> None:
    if ringcomm := sys.modules.get("ringcomm"):
        ringcomm.shutdown()
        importlib.import_module("ringcomm._src.config.config").from_environment.cache_clear()
    gc.collect()  # collects communicators that the case has left open


def _done(case: Case) -> bool:
    """Runs a case, and restores the environment afterwards."""
    variables, path = dict(os.environ), list(sys.path)
    _print_to(case.output, 1)
    _print_to(case.output + ".err", 2)
    try:
        os.environ.update(case.variables)
        sys.path[:0] = [case.folder, *case.variables.get("PYTHONPATH", "").split(os.pathsep)]
        faulthandler.dump_traceback_later(max(case.limit - 1, 1), file=sys.__stderr__)
        getattr(importlib.import_module(case.module), case.function)(*case.arguments)
        if not case.leaves:
            _shut_down()
        return True
    except BaseException:
        traceback.print_exc()
        return False
    finally:
        faulthandler.cancel_dump_traceback_later()
        # this variable stays
        rank = {name: value for name, value in os.environ.items() if name == "RINGCOMM_RANK_PROCESS"}
        os.environ.clear()
        os.environ.update(variables | rank)
        sys.path[:] = path


def _print_to(path: str, descriptor: int) -> None:
    """Redirects a descriptor to a file that all ranks append to."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, descriptor)
    os.close(file)


if __name__ == "__main__":
    # Writes each line in one write, because ranks share the file; PYTHONUNBUFFERED may be set.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    import mpi_pool  # pickled objects use this name

    mpi_pool.work(sys.argv[1])
