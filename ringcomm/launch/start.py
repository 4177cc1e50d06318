"""From a command line to the end of the job."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO

from ringcomm.launch import rank
from ringcomm.launch.job import Line, outside_of_jobs
from ringcomm.launch.report import Report

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SI_KERNEL = 0x80  # where the terminal's Ctrl-C comes from; the launcher, of the same process group, has it too
_LINE = re.compile(rb"[^\n\r]*(?:\r\n|\n|\r)")
AFTER_FAILURE = 5.0  # seconds that a launcher has to end the job itself
SILENCE = 1.0  # seconds after which no more output is expected of a launcher that has ended
GRACE = 10.0  # seconds that a launcher has to end what it started


def tagging(output: str | None, timestamps: bool) -> list[str]:
    """The words before a program that run it under rank.py."""
    words = [sys.executable, "-IS", os.path.abspath(rank.__file__)]
    words += ["--output", os.path.abspath(output)] if output else []
    return [*words, *(["--timestamps"] if timestamps else []), "--"]


def environment_of(line: Line) -> dict[str, str]:
    """This process's, with the interpreter's own folder first in PATH, as if its environment were activated."""
    environment = outside_of_jobs(os.environ)
    if sys.prefix != sys.base_prefix:
        folder = os.path.dirname(sys.executable)
        environment["PATH"] = os.pathsep.join([folder, environment.get("PATH", os.defpath)])
    return environment | line.variables


def replace(line: Line) -> None:
    """Becomes the launcher. Does not return; raises OSError."""
    environment = environment_of(line)
    if line.host_variable:
        environment[line.host_variable] = _hosts_file(line.hosts)  # outlives this process
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(line.arguments[0], line.arguments, environment)


def _hosts_file(hosts: Sequence[str]) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="ringrun-hosts-", delete=False) as file:
        file.write("\n".join(hosts) + "\n")
    return file.name


class Start:
    """A job under a launcher, watched until its end."""

    def __init__(self, line: Line, size: int, start_timeout: float, verbose: bool) -> None:
        self.line, self.report, self.verbose = line, Report(size), verbose
        self._start_timeout = start_timeout
        self._interrupted = 0  # the signal that ended it
        self._read_bytes = 0
        self._lock = threading.Lock()

    def run(self) -> int:
        """The exit status: the first failing rank's if it is known, else the launcher's."""
        environment = environment_of(self.line)
        hosts = _hosts_file(self.line.hosts) if self.line.host_variable else None
        if self.line.host_variable and hosts:
            environment[self.line.host_variable] = hosts
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # taken by a thread that sees who sent them
        try:
            launcher = subprocess.Popen(
                self.line.arguments,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
            return self._watch(launcher)
        finally:
            if hosts:
                os.unlink(hosts)

    def _watch(self, launcher: subprocess.Popen[bytes]) -> int:
        threading.Thread(target=self._pass_signals, args=[launcher], daemon=True).start()
        assert launcher.stdout and launcher.stderr
        readers = [
            threading.Thread(target=self._read, args=[stream, target], daemon=True)
            for stream, target in ((launcher.stdout, 1), (launcher.stderr, 2))
        ]
        for reader in readers:
            reader.start()
        late = self._wait(launcher)
        seen = -1
        while any(reader.is_alive() for reader in readers) and seen < self._read_bytes:
            seen = self._read_bytes
            for reader in readers:
                reader.join(SILENCE)  # somebody may have inherited the launcher's output and live on
        return self._conclude(launcher.returncode, late)

    def _wait(self, launcher: subprocess.Popen[bytes]) -> bool:
        """Until the launcher has ended. Whether it was ended because ranks did not start in time."""
        deadline, failed = time.monotonic() + self._start_timeout, None
        while True:
            try:
                launcher.wait(0.1 if len(self.report.hosts) < self.report.size else 0.5)
                return False
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if len(self.report.hosts) < self.report.size and now > deadline:
                self._end(launcher)
                return True
            if failed is None and self.report.first:
                failed = now
            if failed is not None and now > failed + AFTER_FAILURE:  # MPICH goes on if it happens before MPI_Init
                self._end(launcher)
                return False

    @staticmethod
    def _end(launcher: subprocess.Popen[bytes]) -> None:
        launcher.terminate()
        try:
            launcher.wait(GRACE)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait()

    def _read(self, stream: IO[bytes], target: int) -> None:
        held = b""
        while chunk := os.read(stream.fileno(), 1 << 16):
            held += chunk
            self._read_bytes += len(chunk)
            lines = _LINE.findall(held)
            held = held[sum(map(len, lines)) :]
            self._show(lines, target)
        self._show([held], target)

    def _show(self, lines: list[bytes], target: int) -> None:
        with self._lock:
            shown = [line for line in lines if self.report.hear(line.decode(errors="surrogateescape")) or self.verbose]
            rank.write_all(target, b"".join(shown))

    def _pass_signals(self, launcher: subprocess.Popen[bytes]) -> None:
        while True:
            got = signal.sigwaitinfo(SIGNALS)
            if got.si_signo in rank.ENDING:
                self._interrupted = got.si_signo
            if got.si_code != SI_KERNEL and launcher.poll() is None:
                launcher.send_signal(got.si_signo)

    def _conclude(self, status: int, late: bool) -> int:
        status = status if status >= 0 else 128 - status
        if late:
            missing = sorted(set(range(self.report.size)) - set(self.report.hosts))
            self._say(
                f"ringrun: {len(missing)} of {self.report.size} ranks did not start within {self._start_timeout:g} s "
                f"(ranks {', '.join(map(str, missing))}): check that the hosts can be reached without a password, "
                "or give a longer --start-timeout"
            )
            return 124
        if not status and not self.report.first and not self.report.lost:
            return 0
        if self._interrupted:
            self._say(f"ringrun: ended by {signal.Signals(self._interrupted).name}")
            return 128 + self._interrupted
        summary = self.report.summary()
        if summary:
            self._say("-" * 80, *summary)
        elif not status:
            self._say(
                f"ringrun: the launcher ended as if all were well, but nothing was heard of ranks' ends: "
                f"{', '.join(self.report.lost)}. A host, or the connection to it, was lost"
            )
        else:
            self._say(*(text.rstrip("\n") for text in self.report.aside))
            self._say(f"ringrun: {shlex.quote(self.line.arguments[0])} ended with exit status {status}")
        first = self.report.first
        return (first.status if first and first.status is not None else status) or 1

    def _say(self, *lines: str) -> None:
        with self._lock:
            rank.write_all(2, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
