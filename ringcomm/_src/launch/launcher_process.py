"""Runs a launcher, shows the output of its ranks as it arrives, and passes each line to a Report.

start.py and the driver of elastic jobs use it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from typing import IO

from ringcomm._src.launch import rank
from ringcomm._src.launch.job import CommandLine, without_rank_variables
from ringcomm._src.launch.report import Report, is_of_rank, untagged

_LINE = re.compile(rb"[^\n\r]*(?:\r\n|\n|\r)")
_UNSHOWN = 30  # number of last lines of the launcher that are kept if they are not shown
SILENCE = 1.0  # seconds without output after which a launcher that has ended is expected to write nothing more
GRACE = 10.0  # seconds that a launcher has to end the processes that it started


def environment_of(line: CommandLine) -> dict[str, str]:
    """Returns the environment for a launcher: that of this process and the variables of `line`.

    The folder of the interpreter is first in PATH, as if its virtual environment were activated. If
    the launcher reads a file of hosts, writes that file; the caller must delete it.
    """
    environment = without_rank_variables(os.environ)
    if sys.prefix != sys.base_prefix:
        folder = os.path.dirname(sys.executable)
        environment["PATH"] = os.pathsep.join([folder, environment.get("PATH", os.defpath)])
    environment |= line.variables
    if line.host_variable:
        with tempfile.NamedTemporaryFile("w", prefix="ringrun-hosts-", delete=False) as file:
            file.write("\n".join(line.hosts) + "\n")
        environment[line.host_variable] = file.name
    return environment


_lock = threading.Lock()  # protects this process's output


def print_stderr(*lines: str) -> None:
    """Writes lines to stderr, not mixed with other output."""
    with _lock:
        rank.write_all(2, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))


def wait_or_kill(process: subprocess.Popen[bytes], limit: float) -> None:
    """Waits for the end of the process. Kills it after `limit` seconds."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class LauncherProcess:
    """A running launcher, which the constructor starts.

    Parameters
    ----------
    in_child : Callable[[], object]
        Called between fork and exec.
    only_ranks : bool
        If True, output of the launcher itself is not shown.
    tags : bool
        If True, lines of ranks are shown with their tags.
    """

    def __init__(
        self,
        line: CommandLine,
        size: int,
        verbose: bool,
        in_child: Callable[[], object],
        only_ranks: bool = False,
        tags: bool = True,
    ) -> None:
        """Starts the launcher. Raises OSError."""
        self.report, self._verbose = Report(size), verbose
        self._read_bytes = 0
        self._only_ranks, self._tags = only_ranks, tags
        self.unshown: deque[str] = deque(maxlen=_UNSHOWN)  # lines of the launcher that were not shown
        environment = environment_of(line)
        # Open MPI's launcher keeps its files in a folder named by its process ID. A launcher that
        # is killed leaves the folder, and a later launcher with the same ID would refuse to start.
        self._folder = None
        if line.folder_variable:
            self._folder = tempfile.TemporaryDirectory(prefix="ringrun-", ignore_cleanup_errors=True)
            environment[line.folder_variable] = self._folder.name
        self._hosts = environment[line.host_variable] if line.host_variable else None
        self.process = subprocess.Popen(
            line.arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=in_child
        )
        assert self.process.stdout and self.process.stderr
        self._readers = [
            threading.Thread(target=self._read, args=[stream, target], daemon=True)
            for stream, target in ((self.process.stdout, 1), (self.process.stderr, 2))
        ]
        for reader in self._readers:
            reader.start()

    def end(self) -> None:
        """Ends the launcher and the processes that it has started."""
        self.process.terminate()
        wait_or_kill(self.process, GRACE)

    def drain(self) -> None:
        """Reads the remaining output after the launcher has ended, and deletes its files.

        Returns after SILENCE seconds without output: a process that inherited the streams may keep
        them open.
        """
        seen = -1
        while any(reader.is_alive() for reader in self._readers) and seen < self._read_bytes:
            seen = self._read_bytes
            for reader in self._readers:
                reader.join(SILENCE)
        if self._hosts:
            with contextlib.suppress(OSError):
                os.unlink(self._hosts)
        if self._folder:
            self._folder.cleanup()

    def _read(self, stream: IO[bytes], target: int) -> None:
        unfinished = b""
        while chunk := os.read(stream.fileno(), 1 << 16):
            unfinished += chunk
            self._read_bytes += len(chunk)
            lines = _LINE.findall(unfinished)
            unfinished = unfinished[sum(map(len, lines)) :]
            self._show(lines, target)
        self._show([unfinished], target)

    def _show(self, lines: list[bytes], target: int) -> None:
        with _lock:
            texts = (line.decode(errors="surrogateescape") for line in lines)
            shown = [text if self._tags else untagged(text) for text in texts if self._is_shown(text)]
            rank.write_all(target, "".join(shown).encode(errors="surrogateescape"))

    def _is_shown(self, line: str) -> bool:
        shown = self.report.add_line(line)
        if self._verbose or not shown or not self._only_ranks or is_of_rank(line):
            return shown or self._verbose
        self.unshown.append(line)
        return False
