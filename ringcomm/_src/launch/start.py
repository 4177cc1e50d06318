"""Runs the command line of a job and watches the launcher until the job ends: timeouts, signals, exit status."""

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
from ringcomm._src.launch.job import Line
from ringcomm._src.launch.launched import Launched, environment_of, say

SI_KERNEL = 0x80  # si_code of the terminal's Ctrl-C, which the launcher, in the same process group, gets itself
AFTER_FAILURE = 5.0  # seconds after a failure in which the launcher must end the job itself


def tagging(module: str, options: argparse.Namespace) -> list[str]:
    """Returns the words that, before a program, run it under a module such as rank.py."""
    words = ["--output", os.path.abspath(options.output_filename)] if options.output_filename else []
    return [*bare_command(module), *words, *(["--timestamps"] if options.timestamps else []), "--"]


def replace(line: Line) -> None:
    """Replaces this process by the launcher. Does not return; raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(line.arguments[0], line.arguments, environment_of(line))  # the file of hosts is not deleted


class Start:
    """A job under a launcher, which it watches until the end."""

    def __init__(self, line: Line, size: int, start_timeout: float, verbose: bool, hosts: Sequence[Host] = ()) -> None:
        """`hosts`: the hosts that the user named, with the number of ranks on each as slots."""
        self._line, self._size, self._verbose, self._hosts = line, size, verbose, hosts
        self._start_timeout = start_timeout
        self._interrupted = 0  # number of the signal that ended the job; 0: none

    def run(self) -> int:
        """Runs the job. Returns the exit status of the rank that failed first if it is known, else the launcher's."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, rank.FORWARDED)  # a thread takes them, with their si_code
        unmask = partial(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        launched = Launched(self._line, self._size, self._verbose, unmask)
        threading.Thread(target=self._pass_signals, args=[launched.process], daemon=True).start()
        late = self._wait(launched)
        launched.drain()
        return self._conclude(launched, late)

    def _wait(self, launched: Launched) -> bool:
        """Waits until the launcher has ended. Returns True if it was ended because ranks did not start in time."""
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
            got = signal.sigwaitinfo(rank.FORWARDED)
            if got.si_signo in rank.ENDING:
                self._interrupted = got.si_signo
            if got.si_code != SI_KERNEL and launcher.poll() is None:
                launcher.send_signal(got.si_signo)

    def _conclude(self, launched: Launched, late: bool) -> int:
        status, report = as_shell(launched.process.returncode), launched.report
        missing = set(range(report.size)) - set(report.hosts)
        if late:
            say(
                f"ringrun: {len(missing)} of {report.size} ranks did not start within {self._start_timeout:g} s "
                f"({describe_ranks(missing, self._hosts)}): check that the hosts can be reached without a password, "
                "or give a longer --start-timeout"
            )
            return 124
        if not status and not report.first and not report.lost:
            return 0
        if self._interrupted:
            say(f"ringrun: ended by {signal.Signals(self._interrupted).name}")
            return 128 + self._interrupted
        summary = report.summary()
        if summary:
            say("-" * 80, *summary)
        elif not status:
            say(
                f"ringrun: the launcher ended as if all were well, but nothing was heard of ranks' ends: "
                f"{', '.join(report.lost)}. A host, or the connection to it, was lost"
            )
        else:
            say(*(text.rstrip("\n") for text in report.aside))
            say(f"ringrun: {shlex.quote(self._line.arguments[0])} ended with exit status {status}")
            if missing and self._hosts:
                say(
                    f"ringrun: never started: {describe_ranks(missing, self._hosts)}. Check the names, and that each "
                    "host can be reached without a password: ssh HOST true"
                )
        first = report.first
        return (first.status if first and first.status is not None else status) or 1
