"""Runs one rank's program and stands between it and the launcher: tags its output, says how it ended.

Run by ringcomm/_src/elastic/agent/start.py, on the hosts of the ranks, so it imports little but the standard library:
``python start.py ringcomm._src.launch.rank [--output DIR] [--timestamps] -- COMMAND ...``
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

PARTIAL = 1.0  # seconds that the start of a line is held back
AFTER = 2.0  # seconds that output is read after the program has ended: its children may go on writing
BEFORE_EXIT = 0.2  # launchers forward what was written before they learn that a rank has failed

_LINE = re.compile(rb"[^\n\r]*(?:\r\n|\n|\r(?!\Z))")  # '\r' ends one too, for progress bars


class Stream:
    """Lines of one of the program's streams, on their way."""

    def __init__(self, name: str, rank: int, target: int, folder: str | None, mode: str, timestamps: bool) -> None:
        self.reading, writing = os.pipe()
        self.writing = writing
        self._tag = TAG.format(rank=rank, stream=name)
        self._target, self._timestamps = target, timestamps
        self._file = None
        if folder:
            self._file = open(os.path.join(folder, name), mode, buffering=0)  # noqa: SIM115  open to the end
        self._held = b""
        self._held_since = 0.0

    def read(self) -> bool:
        """Passes on what has come; False at the end."""
        chunk = os.read(self.reading, 1 << 16)
        if not chunk:
            self.flush()
            return False
        if self._file:
            self._file.write(chunk)
        if not self._held:
            self._held_since = time.monotonic()
        self._held += chunk
        if lines := _LINE.findall(self._held):
            self._held = self._held[sum(map(len, lines)) :]
            self._held_since = time.monotonic()
            self._write(lines)
        return True

    def flush(self, older_than: float = 0.0) -> None:
        """Passes on a line that has no end yet: a prompt, perhaps."""
        if self._held and time.monotonic() - self._held_since >= older_than:
            held, self._held = self._held, b""
            self._write([held if held.endswith((b"\n", b"\r")) else held + b"\n"])

    def _write(self, lines: list[bytes]) -> None:
        tag = (time.strftime("%Y-%m-%d %H:%M:%S ") if self._timestamps else "") + self._tag
        write_all(self._target, b"".join(tag.encode() + line for line in lines))


def write_all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def first_number(names: tuple[str, ...]) -> int:
    """The first of these environment variables that is a number; 0 if none is."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


def _in_child() -> None:
    """Between fork and exec: its own process group, for signals come through the parent; and it dies with that."""
    os.setpgid(0, 0)
    die_with_parent()


def describe(status: int) -> str:
    """Of subprocess's return code."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


class Rank:
    """One program, from its start to its end."""

    mode = "wb"  # of files of output

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
        self.told_to_end = False
        self.child: Any = None  # subprocess.Popen, or what acts like it
        self.command = command

    def say(self, text: str, **words: object) -> None:
        write_all(2, (text.format(rank=self.rank, host=self.host, **words) + "\n").encode())

    def run(self) -> int:
        """subprocess's return code."""
        wakeup, _ = wake_at_signals()
        for number in FORWARDED:
            signal.signal(number, self._forward)
        self.say(STARTED)
        out, err = self.streams
        self.child = self.start(out.writing, err.writing)
        os.close(out.writing)
        os.close(err.writing)
        if self.told_to_end:  # before there was anybody to tell
            self.signal(signal.SIGTERM)
        self._pump(wakeup)
        return int(self.child.returncode)

    def start(self, out: int, err: int) -> Any:
        return subprocess.Popen(
            self.command,
            stdout=out,
            stderr=err,
            close_fds=False,  # MPICH's launcher gives its connection as a descriptor
            preexec_fn=_in_child,
        )

    def signal(self, number: int) -> None:
        signal_group(self.child.pid, number)

    def sources(self) -> list[Any]:
        """What there is to be read, beside the streams, when the program has ended."""
        return []

    def finish(self) -> None:
        """After it has ended badly, and that was said."""
        time.sleep(BEFORE_EXIT)

    def _forward(self, number: int, _frame: object) -> None:
        self.told_to_end |= number in ENDING
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
        rank.say(ENDED, how=f"exit status 127: {error.strerror}: {error.filename}")
        status = 127
    else:
        if not status or not rank.told_to_end:  # also a good end: a launcher that loses a host may say that all is well
            rank.say(ENDED, how=describe(status))
    if status:
        rank.finish()
    return as_shell(status)
