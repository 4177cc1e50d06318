"""Starts one rank's program for the launcher, tags the program's output, and reports its end.

ringcomm/_src/elastic/agent/start.py runs this module on the hosts of the ranks:
``python start.py ringcomm._src.launch.rank [--output DIR] [--timestamps] -- COMMAND ...``
For a fast start, the module imports almost only the standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from typing import Any

from ringcomm._src.elastic.agent.processes import as_shell, die_with_parent, signal_group, wake_at_signals

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")

TAG = "[{rank}]<{stream}>: "
STARTED = "ringrun: rank {rank} started on {host}"
ENDED = "ringrun: rank {rank} on {host} ended with {how}"

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)

PARTIAL = 1.0  # seconds after which the start of an unfinished line is written
AFTER = 2.0  # seconds that output is read after the program has ended: its children may still write
BEFORE_EXIT = 0.2  # seconds that the launcher gets to forward output before it sees the rank fail

_LINE = re.compile(rb"[^\n\r]*(?:\r\n|\n|\r(?!\Z))")  # '\r' ends a line too, for progress bars


class Stream:
    """An output stream of the program: reads, tags and writes its lines to `target` and a file."""

    def __init__(self, name: str, rank: int, target: int, folder: str | None, mode: str, timestamps: bool) -> None:
        self.reading, writing = os.pipe()
        self.writing = writing
        self._tag = TAG.format(rank=rank, stream=name)
        self._target, self._timestamps = target, timestamps
        self._file = None
        if folder:
            self._file = open(os.path.join(folder, name), mode, buffering=0)  # noqa: SIM115  open to the end
        self._unfinished = b""
        self._unfinished_since = 0.0

    def read(self) -> bool:
        """Passes on the available output. Returns False at the end of the stream."""
        chunk = os.read(self.reading, 1 << 16)
        if not chunk:
            self.flush()
            return False
        if self._file:
            self._file.write(chunk)
        if not self._unfinished:
            self._unfinished_since = time.monotonic()
        self._unfinished += chunk
        if lines := _LINE.findall(self._unfinished):
            self._unfinished = self._unfinished[sum(map(len, lines)) :]
            self._unfinished_since = time.monotonic()
            self._write(lines)
        return True

    def flush(self, older_than: float = 0.0) -> None:
        """Passes on an unfinished line (a prompt) that is older than `older_than` seconds."""
        if self._unfinished and time.monotonic() - self._unfinished_since >= older_than:
            unfinished, self._unfinished = self._unfinished, b""
            self._write([unfinished if unfinished.endswith((b"\n", b"\r")) else unfinished + b"\n"])

    def _write(self, lines: list[bytes]) -> None:
        tag = (time.strftime("%Y-%m-%d %H:%M:%S ") if self._timestamps else "") + self._tag
        write_all(self._target, b"".join(tag.encode() + line for line in lines))


def write_all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def first_number(names: tuple[str, ...]) -> int:
    """Returns the first of these environment variables that is a number; 0 if none is."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


def _in_child() -> None:
    """Prepares the program's process between fork and exec.

    The process gets its own process group, because the parent forwards signals. It is killed when
    the parent dies.
    """
    os.setpgid(0, 0)
    die_with_parent()


def describe(status: int) -> str:
    """Returns a text for a return code of subprocess."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


class Rank:
    """The program of one rank, from its start to its end."""

    mode = "wb"  # mode of output files

    def __init__(self, command: list[str], folder: str | None, timestamps: bool) -> None:
        self.rank, self.host = first_number(RANK_VARIABLES), socket.gethostname()
        if folder:
            width = len(str(max(first_number(SIZE_VARIABLES) - 1, 0)))
            folder = os.path.join(folder, f"rank.{self.rank:0{width}}")
            os.makedirs(folder, exist_ok=True)
        self.streams = [
            Stream(name, self.rank, target, folder, self.mode, timestamps)
            for name, target in (("stdout", 1), ("stderr", 2))
        ]
        self.end_requested = False
        self.child: Any = None  # subprocess.Popen, or an object with its interface
        self.command = command

    def report(self, text: str, **words: object) -> None:
        write_all(2, (text.format(rank=self.rank, host=self.host, **words) + "\n").encode())

    def run(self) -> int:
        """Runs the program and returns its return code, as subprocess does."""
        wakeup, _ = wake_at_signals()
        for number in FORWARDED:
            signal.signal(number, self._forward)
        self.report(STARTED)
        out, err = self.streams
        self.child = self.start(out.writing, err.writing)
        os.close(out.writing)
        os.close(err.writing)
        if self.end_requested:  # a signal arrived before the program had started
            self.signal(signal.SIGTERM)
        self._pump(wakeup)
        return int(self.child.returncode)

    def start(self, out: int, err: int) -> Any:
        return subprocess.Popen(
            self.command,
            stdout=out,
            stderr=err,
            close_fds=False,  # MPICH's launcher passes its connection as a descriptor
            preexec_fn=_in_child,
        )

    def signal(self, number: int) -> None:
        signal_group(self.child.pid, number)

    def sources(self) -> list[Any]:
        """Returns objects, besides the streams, that become readable when the program ends."""
        return []

    def finish(self) -> None:
        """Runs after the program's failure was reported, before this process exits."""
        time.sleep(BEFORE_EXIT)

    def _forward(self, number: int, _frame: object) -> None:
        self.end_requested |= number in ENDING
        if self.child is not None and self.child.poll() is None:
            self.signal(number)

    def _pump(self, wakeup: int) -> None:
        with selectors.DefaultSelector() as selector:
            for source in (wakeup, *self.sources()):
                selector.register(source, selectors.EVENT_READ)
            others = len(selector.get_map())
            for stream in self.streams:
                selector.register(stream.reading, selectors.EVENT_READ, stream)
            deadline = None
            while True:
                if deadline is None and self.child.poll() is not None:
                    deadline = time.monotonic() + AFTER
                    for source in self.sources():
                        selector.unregister(source)
                        others -= 1
                if len(selector.get_map()) == others and deadline is not None:
                    break
                ready = selector.select(0.1 if deadline else PARTIAL)
                if deadline and (time.monotonic() > deadline or not ready):
                    break
                for key, _ in ready:
                    if key.fd == wakeup:
                        os.read(wakeup, 1 << 10)
                    elif key.data is not None and not key.data.read():
                        selector.unregister(key.fd)
                for stream in self.streams:
                    stream.flush(PARTIAL)
            for stream in self.streams:
                stream.flush()


def main(kind: type[Rank] = Rank) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    parser.add_argument("--timestamps", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    rank = kind(options.command, options.output, options.timestamps)
    try:
        status = rank.run()
    except OSError as error:
        rank.report(ENDED, how=f"exit status 127: {error.strerror}: {error.filename}")
        status = 127
    else:
        if not status or not rank.end_requested:  # also reports success: a launcher that lost a host may report it
            rank.report(ENDED, how=describe(status))
    if status:
        rank.finish()
    return as_shell(status)
