"""One membership: its ranks under a launcher of their own, and how they ended."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ringcomm.agent.peers import die_with_parent
from ringcomm.agent.said import CONSEQUENCE, ENTERED, GENERATION, LEFT, OWN, STOPPED
from ringcomm.launch.elastic.membership import Slot
from ringcomm.launch.hosts import Host
from ringcomm.launch.job import Job, Line
from ringcomm.launch.launched import Launched
from ringcomm.launch.rank import describe

_TERMINATE = 1.0  # seconds that a launcher has after SIGTERM


@dataclass(frozen=True)
class End:
    """Of a rank."""

    rank: int
    status: int  # as subprocess's return code
    cause: str  # of ringcomm.agent.trainers
    said: str

    @property
    def good(self) -> bool:
        return self.status == 0 and self.said not in (ENTERED, LEFT)

    @property
    def own_fault(self) -> bool:
        return not self.good and self.cause in (OWN, STOPPED) and self.said != CONSEQUENCE

    @property
    def how(self) -> str:
        if self.status == 0:
            return "left the training early, with exit status 0"
        return "stood still" if self.cause == STOPPED else f"ended with {describe(self.status)}"


class Generation:
    """`place`: slots of the ranks, in their order. `line_of`: the command line for a job."""

    def __init__(self, number: int, place: list[Slot], job: Job, alias: Callable[[str], str]) -> None:
        self.number, self.place, self._job = number, place, job
        hosts: dict[str, int] = {}
        for slot in place:
            hosts[alias(slot.host)] = hosts.get(alias(slot.host), 0) + 1
        self.hosts = [Host(name, count) for name, count in hosts.items()]
        # A launcher fills one host after the other.
        self.place = [slot for host in self.hosts for slot in place if alias(slot.host) == host.name]
        self.ends: dict[int, End] = {}
        self.said: dict[int, str] = {}  # while they run
        self.launched: Launched | None = None

    def job(self, everything_here: bool) -> Job:
        variables = {**self._job.variables, GENERATION: str(self.number)}
        hosts = () if everything_here else tuple(self.hosts)
        return replace(self._job, size=len(self.place), hosts=hosts, variables=variables)

    def start(self, line: Line, verbose: bool, over: Callable[[], None]) -> None:
        """`over` is called, by a thread, when the launcher has ended. Raises OSError."""
        self.launched = Launched(line, len(self.place), verbose, _in_child, only_ranks=True)
        process = self.launched.process

        def wait() -> None:
            process.wait()
            over()

        threading.Thread(target=wait, daemon=True).start()

    def left(self, rank: int) -> None:
        """It will end, and is missed by now."""
        self.ends.setdefault(rank, End(rank, 0, OWN, LEFT))

    def ended(self, message: dict[str, Any]) -> End:
        end = End(message["rank"], message["status"], message["cause"], message["said"])
        return self.ends.setdefault(end.rank, end)

    @property
    def all_well(self) -> bool:
        return len(self.ends) == len(self.place) and all(end.good for end in self.ends.values())

    def any_said(self, what: str) -> bool:
        """As its last word."""
        return any(end.said == what for end in self.ends.values())

    @property
    def first_fault(self) -> End | None:
        """Whom the others' ends follow from: who was killed, before who ended of itself, for that may be the answer."""
        faults = [end for end in self.ends.values() if end.own_fault]
        return min(faults, key=lambda end: end.status >= 0, default=None)

    def last_words(self, fault: End) -> list[str]:
        """Of a rank that ended by its own fault: its traceback, or its last lines, and how it ended."""
        assert self.launched
        slot, how = self.place[fault.rank], describe(fault.status)
        end = f"ringrun: rank {fault.rank} of {len(self.place)} on {slot.host} failed first, with {how}"
        return [*self.launched.report.last_words(fault.rank), end]

    def release(self) -> None:
        """The launcher, whose ranks are all gone, is ended in the background."""
        assert self.launched
        process = self.launched.process

        def act() -> None:
            try:
                process.wait(_TERMINATE / 4)  # of itself: then it leaves nothing behind
            except subprocess.TimeoutExpired:
                process.terminate()
                try:
                    process.wait(_TERMINATE)
                except subprocess.TimeoutExpired:
                    process.kill()

        threading.Thread(target=act, daemon=True).start()

    def drain(self) -> None:
        """Until the launcher has ended, and all of the output is shown."""
        assert self.launched
        deadline = time.monotonic() + 4 * _TERMINATE
        while self.launched.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        if self.launched.process.poll() is None:
            self.launched.process.kill()
            self.launched.process.wait()
        self.launched.drain()


def _in_child() -> None:
    os.setsid()  # a Ctrl-C is the driver's
    die_with_parent()
