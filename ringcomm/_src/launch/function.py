"""Calls a function on the ranks of a new job and returns their results. Implements `ringcomm.run`.

The ranks connect to this process: once to get the function, and once to send the result or error.
"""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import IO, Any

from ringcomm._src.base.errors import CONSEQUENCES
from ringcomm._src.base.installed import missing_message
from ringcomm._src.launch.hosts import Host, is_local

ADDRESS, KEY = "RINGCOMM_RUN_ADDRESS", "RINGCOMM_RUN_KEY"  # in the environment of the ranks


class RankTraceback(Exception):
    """The ``__cause__`` of an exception that a rank raised: holds the traceback on that rank."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank, self.text = rank, text

    def __str__(self) -> str:
        return f"on rank {self.rank}:\n{self.text}"


def call_on_ranks(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    size: int | None,
    hosts: Sequence[Host],
    options: Sequence[str],
    executable: str | None,
) -> list[Any]:
    """Runs `func` as `ringcomm.run` does.

    `options`: arguments of ringrun. `size`: number of ranks; None: not known in advance.
    """
    payload = pickle.dumps((sys.path, dumps((func, tuple(args), dict(kwargs)))))  # unpickling `func` needs the path
    remote = not all(is_local(host.name) for host in hosts) or "--host-discovery-script" in options
    with Exchange(payload, remote) as exchange:
        command = [*options, "-x", ADDRESS, "-x", KEY, executable or sys.executable, "-m", "ringcomm._src.launch.call"]
        status = _launch(command, exchange.variables)
    return exchange.results(size, status)


def dumps(value: Any) -> bytes:
    """Pickles `value`, with cloudpickle if that is installed. Raises ValueError if this fails."""
    advice = ""
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
        advice = f"; {missing_message('cloudpickle', 'sending lambdas, closures and objects of the main script')}"
        for part in value if isinstance(value, tuple) else (value,):
            if callable(part) and getattr(part, "__module__", None) == "__main__":
                raise ValueError(f"ranks cannot import {part!r}{advice}") from None
    try:
        return bytes(pickler.dumps(value))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(f"the object cannot be sent to another process: {error}{advice}") from error


class Exchange:
    """A server that sends the function to every rank and receives its result or exception.

    Each rank connects twice. The server handles one connection at a time.
    """

    def __init__(self, payload: bytes, remote: bool) -> None:
        self._payload, self._remote = payload, remote
        self._key = secrets.token_bytes(32)
        self._results: dict[int, bytes] = {}
        self._generation = 0
        self.started: set[int] = set()  # ranks that have asked for the function
        self._errors: list[tuple[int, bytes | None, str, str]] = []  # rank, exception, name of its type, traceback

    def __enter__(self) -> Exchange:
        self._folder = tempfile.TemporaryDirectory(prefix="ringcomm-run-")
        address = ("0.0.0.0", 0) if self._remote else os.path.join(self._folder.name, "socket")
        self._listener = Listener(address, backlog=128, authkey=self._key)
        self._thread = threading.Thread(target=self._serve, name="ringcomm-run", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        connection = Client(self._listener.address, authkey=self._key)
        connection.send(("end",))
        self._thread.join()
        connection.close()
        self._listener.close()
        self._folder.cleanup()

    @property
    def variables(self) -> dict[str, str]:
        """Variables for the environment of the ranks: the address of this server and its key."""
        if isinstance(self._listener.address, str):
            where = self._listener.address
        else:
            where = f"{socket.getfqdn()}:{self._listener.address[1]}"
        return {ADDRESS: where, KEY: self._key.hex()}

    @property
    def failed(self) -> bool:
        """True if a rank has reported an error."""
        return bool(self._errors)

    def _serve(self) -> None:
        while True:
            try:
                with self._listener.accept() as connection:
                    kind, *rest = connection.recv()
                    if kind == "end":
                        return
                    if kind == "function":
                        self.started.update(rest)
                        connection.send_bytes(self._payload)
                    elif kind == "result":
                        rank, generation = rest
                        self._store(rank, generation, connection.recv_bytes())
                    elif kind == "error":
                        self._errors.append(tuple(rest))
            except (AuthenticationError, EOFError, OSError):  # not a rank of this job, or a rank that died
                continue

    def _store(self, rank: int, generation: int, result: bytes) -> None:
        """Stores a rank's result. Only results of an elastic job's last generation count."""
        if generation > self._generation:
            self._generation = generation
            self._results.clear()
            self._errors.clear()
        if generation == self._generation:
            self._results[rank] = result

    def results(self, size: int | None, status: int) -> list[Any]:
        """Returns the results by rank. Raises the first error. `status`: the job's exit status."""
        size = len(self._results) if size is None else size
        silent = sorted({*range(size)} - {*self._results} - {error[0] for error in self._errors})
        causes = [error for error in self._errors if error[2] not in CONSEQUENCES]
        errors = causes or ([] if silent else self._errors)  # a silent rank may have caused these errors
        if errors and (status or len(self._results) < size or not size):
            rank, pickled, _, text = errors[0]
            cause = RankTraceback(rank, text)
            try:
                error = pickle.loads(pickled) if pickled else None
            except Exception:  # only the ranks can import its class, or it cannot be unpickled
                error = None
            if not isinstance(error, BaseException):
                error = RuntimeError(f"rank {rank} raised {text.strip().splitlines()[-1]}")
            raise error from cause
        if status or len(self._results) < size:
            raise RuntimeError(f"the job ended with exit status {status}, without results of ranks {silent}")
        return [pickle.loads(self._results[rank]) for rank in range(size)]


def _launch(command: list[str], variables: dict[str, str]) -> int:
    """Runs ringrun and returns its exit status.

    ringrun is a separate process, so it does not change the caller's signal handlers and threads.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "ringcomm", "run", *command],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdout and process.stderr
    readers = [
        threading.Thread(target=_pass_on, args=pair, daemon=True)
        for pair in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    ]
    for reader in readers:
        reader.start()
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        for reader in readers:
            reader.join(5)


def _pass_on(source: IO[str], target: IO[str]) -> None:
    """Copies lines to sys.stdout or sys.stderr, which a notebook may have replaced."""
    for line in source:
        target.write(line)
        target.flush()
