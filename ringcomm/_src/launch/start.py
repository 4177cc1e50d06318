"""Runs a job's command line and watches the launcher: timeouts, signals, exit status."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

from ringcomm._src.elastic.agent.processes import as_shell
from ringcomm._src.elastic.agent.start import bare_command
from ringcomm._src.launch import rank
from ringcomm._src.launch.hosts import Host, describe_ranks
from ringcomm._src.launch.job import CommandLine
from ringcomm._src.launch.launcher_process import LauncherProcess, environment_of, print_stderr

SI_KERNEL = 0x80  # si_code of a terminal's Ctrl-C, which the launcher gets too: it is in the same process group
AFTER_FAILURE = 5.0  # seconds after a failure in which the launcher must end the job itself


def wrapper_command(module: str, options: argparse.Namespace) -> list[str]:
    """Returns the words to put before a program, to run it under a module such as rank.py."""
    words = ["--output", os.path.abspath(options.output_filename)] if options.output_filename else []
    return [*bare_command(module), *words, *(["--timestamps"] if options.timestamps else []), "--"]


def replace(line: CommandLine) -> None:
    """Replaces this process by the launcher. Does not return; raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(line.arguments[0], line.arguments, environment_of(line))  # the file of hosts is not deleted


class JobRunner:
    """Runs a job under a launcher, and watches the launcher until it ends."""

    def __init__(
        self, line: CommandLine, size: int, start_timeout: float, verbose: bool, hosts: Sequence[Host] = ()
    ) -> None:
        """`hosts`: the hosts that the user named, with the number of ranks on each as slots."""
        self._line, self._size, self._verbose, self._hosts = line, size, verbose, hosts
        self._start_timeout = start_timeout
        self._interrupted = 0  # number of the signal that ended the job; 0: none

    def run(self) -> int:
        """Runs the job. Returns the exit status of the first failed rank, else the launcher's."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, rank.FORWARDED)  # a thread receives them, with si_code
        unmask = partial(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        launched = LauncherProcess(self._line, self._size, self._verbose, unmask)
        threading.Thread(target=self._pass_signals, args=[launched.process], daemon=True).start()
        timed_out = self._wait(launched)
        launched.drain()
        return self._conclude(launched, timed_out)

    def _wait(self, launched: LauncherProcess) -> bool:
        """Waits until the launcher ends. Returns True if ranks did not start in time."""
        deadline, failed = time.monotonic() + self._start_timeout, None
        report = launched.report
        while True:
            try:
                launched.process.wait(0.1 if len(report.hosts) < report.size else 0.5)
                return False
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if len(report.hosts) < report.size and now > deadline:
                launched.end()
                return True
            if failed is None and report.first:
                failed = now
            if failed is not None and now > failed + AFTER_FAILURE:  # MPICH continues if a rank fails before MPI_Init
                launched.end()
                return False

    def _pass_signals(self, launcher: subprocess.Popen[bytes]) -> None:
        while True:
            received = signal.sigwaitinfo(rank.FORWARDED)
            if received.si_signo in rank.ENDING:
                self._interrupted = received.si_signo
            if received.si_code != SI_KERNEL and launcher.poll() is None:
                launcher.send_signal(received.si_signo)

    def _conclude(self, launched: LauncherProcess, timed_out: bool) -> int:
        status, report = as_shell(launched.process.returncode), launched.report
        missing = set(range(report.size)) - set(report.hosts)
        if timed_out:
            print_stderr(
                f"ringrun: {len(missing)} of {report.size} ranks did not start within {self._start_timeout:g} s "
                f"({describe_ranks(missing, self._hosts)}): check that the hosts can be reached without a password, "
                "or increase --start-timeout"
            )
            return 124
        if not status and not report.first and not report.lost:
            return 0
        if self._interrupted:
            print_stderr(f"ringrun: ended by {signal.Signals(self._interrupted).name}")
            return 128 + self._interrupted
        summary = report.summary()
        if summary:
            print_stderr("-" * 80, *summary)
        elif not status:
            print_stderr(
                "ringrun: the launcher ended with exit status 0, but ringrun received no exit status of these ranks: "
                f"{', '.join(report.lost)}. A host, or the connection to it, was lost"
            )
        else:
            print_stderr(*(text.rstrip("\n") for text in report.launcher_lines))
            print_stderr(f"ringrun: {shlex.quote(self._line.arguments[0])} ended with exit status {status}")
            if missing and self._hosts:
                print_stderr(
                    f"ringrun: never started: {describe_ranks(missing, self._hosts)}. Check the host names, and that "
                    "each host can be reached without a password: ssh HOST true"
                )
        first = report.first
        return (first.status if first and first.status is not None else status) or 1
