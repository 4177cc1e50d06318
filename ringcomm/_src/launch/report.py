"""Derives from a job's output which ranks started, which failed first, and their last lines.

launcher_process.py passes every line to a Report; start.py prints the Report's summary.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from ringcomm._src.launch import rank

LAST_LINES = 400  # lines of each rank's stderr that are kept for a traceback
SHOWN = 20  # lines that are shown if there is no traceback

_TAGGED = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?\[(?P<rank>\d+)\]<(?P<stream>stdout|stderr)>: (?P<text>.*)", re.DOTALL
)


def is_of_rank(line: str) -> bool:
    """Returns True if a rank wrote the line, False if the launcher did."""
    return bool(_TAGGED.fullmatch(line.rstrip("\r\n")))


def untagged(line: str) -> str:
    """Returns the line without the tag of its rank; a launcher's line has none."""
    tagged = _TAGGED.fullmatch(line)
    return (tagged["time"] or "") + tagged["text"] if tagged else line


def _pattern(template: str) -> re.Pattern[str]:
    """Returns a pattern for a line that rank.py writes: its {words} become groups."""
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(template)))


_STARTED, _ENDED = _pattern(rank.STARTED), _pattern(rank.ENDED)
# ringcomm/_src/process/exits.py writes this line before a rank ends the job.
_ENDING = re.compile(r"ringcomm: rank (?P<rank>\d+) of \d+ \((?P<host>.+?)\): (?P<how>.+); ending the job")
_ENDING_ALONE = re.compile(r"ringcomm: rank \d+ of \d+ \(.+?\): .+; the other ranks continue")
_ABORT = re.compile(r"Abort\(\d+\) on node")  # MPICH's line after MPI_Abort
_END_PATTERNS = (_ENDING, _ENDING_ALONE, _ABORT)
_CONSEQUENCE = re.compile(r"(PeerLostError|RankLeftError|ShutDownError)\b")
_STATUS = re.compile(r"(exit status|signal|sys\.exit\()\s*(\d+)")


@dataclass
class Failure:
    """The failure of a rank."""

    rank: int
    host: str
    how: str  # "exit status 1", "signal 9 (SIGKILL)", "ValueError: unknown layer"

    @property
    def consequence(self) -> bool:
        """True if the failure is a consequence of another rank's end."""
        return bool(_CONSEQUENCE.match(self.how))

    @property
    def status(self) -> int | None:
        """Exit status as a shell reports it; None if unknown."""
        found = _STATUS.match(self.how)
        if not found:
            return None
        return int(found[2]) + (128 if found[1] == "signal" else 0)


@dataclass
class Report:
    """The state of a job, derived from all lines of its output."""

    size: int
    hosts: dict[int, str] = field(default_factory=dict)  # rank -> host, for ranks that have started
    finished: set[int] = field(default_factory=set)  # ranks that ended with status 0
    failures: list[Failure] = field(default_factory=list)  # in the order in which they were reported
    _stderr_lines: dict[int, deque[str]] = field(default_factory=dict)
    launcher_lines: list[str] = field(default_factory=list)  # lines of the launcher after the first failure

    def add_line(self, line: str) -> bool:
        """Processes a line, with its line end. Returns True if the user should see it now."""
        text = line.rstrip("\r\n")
        tagged = _TAGGED.fullmatch(text)
        if tagged:
            if tagged["stream"] == "stderr":
                self._add_stderr_line(int(tagged["rank"]), tagged["text"])
            return True
        if started := _STARTED.fullmatch(text):
            self.hosts[int(started["rank"])] = started["host"]
            return False
        if ended := _ENDED.fullmatch(text):
            failure = Failure(int(ended["rank"]), ended["host"], ended["how"])
            if failure.status == 0:
                self.finished.add(failure.rank)
            else:
                self._failed(failure)
            return False
        if self.failures:
            self.launcher_lines.append(line)
        return not self.failures

    def _add_stderr_line(self, number: int, text: str) -> None:
        self._stderr_lines.setdefault(number, deque(maxlen=LAST_LINES)).append(text)
        ending = _ENDING.fullmatch(text)
        if ending and int(ending["rank"]) == number:
            self._failed(Failure(number, ending["host"], ending["how"]))

    def _failed(self, failure: Failure) -> None:
        if all(earlier.rank != failure.rank for earlier in self.failures):
            self.failures.append(failure)

    @property
    def first(self) -> Failure | None:
        """The failure that most likely caused all other failures; None if no rank has failed."""
        causes = [failure for failure in self.failures if not failure.consequence]
        return (causes or self.failures or [None])[0]  # type: ignore[list-item]

    @property
    def lost(self) -> list[str]:
        """Ranks without a reported successful end, with their hosts."""
        unknown = "an unknown host"
        return [f"{r} on {self.hosts.get(r, unknown)}" for r in range(self.size) if r not in self.finished]

    def last_output(self, number: int) -> list[str]:
        """Returns a rank's last traceback and the lines after it, or its last lines on stderr."""
        lines = [
            text
            for text in self._stderr_lines.get(number, ())
            if not any(pattern.match(text) for pattern in _END_PATTERNS)
        ]
        starts = [index for index, text in enumerate(lines) if text.startswith("Traceback (most recent call last)")]
        if not starts:
            return lines[-SHOWN:]
        first = starts[-1]
        # Chained exceptions ("During handling of the above exception ...") belong to the traceback.
        while len(starts) > 1 and any(text.startswith(_CHAINS) for text in lines[starts[-2] : first]):
            starts.pop()
            first = starts[-1]
        return lines[first:]

    def summary(self) -> list[str]:
        """Returns the failed rank's traceback and a line with the reason; empty if none failed."""
        first = self.first
        if first is None:
            return []
        others = [failure.rank for failure in self.failures if failure.rank != first.rank]
        also = f"; then rank{'s' * (len(others) > 1)} {', '.join(map(str, sorted(others)))}" if others else ""
        end = f"ringrun: rank {first.rank} of {self.size} on {first.host} failed first, with {first.how}{also}"
        return [*self.last_output(first.rank), end]


_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
