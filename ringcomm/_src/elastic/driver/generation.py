"""One membership: its ranks under a launcher of their own, and how they ended."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ringcomm._src.elastic.agent.protocol import CONSEQUENCE, ENTERED, GENERATION, LEFT, OWN, STOPPED
from ringcomm._src.elastic.driver.membership import Slot
from ringcomm._src.launch.hosts import Host
from ringcomm._src.launch.job import Job
from ringcomm._src.launch.launched import Launched, wait_or_kill
from ringcomm._src.launch.rank import describe

_EARLY_END = 0.5  # seconds in which it must be known why a launcher ended, or why ranks miss others
_TERMINATE = 1.0  # seconds that a launcher has after SIGTERM


@dataclass(frozen=True)
class End:
    """Of a rank."""

    rank: int
    status: int  # as subprocess's return code
    cause: str  # of ringcomm._src.elastic.agent.trainers
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
    """`place`: slots of the ranks, in their order. `alias`: as of `Agents`."""

    launched: Launched

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
        self.updated = False  # its ranks were told to commit and leave
        self.ending: set[str] | None = None  # agents whose word is awaited that it is over
        self.end_by: float | None = None  # if it is not known by then whose fault it was, that something ended,
        self.cause = ""  # then this is the reason

    def job(self, everything_here: bool) -> Job:
        variables = {**self._job.variables, GENERATION: str(self.number)}
        hosts = () if everything_here else tuple(self.hosts)
        return replace(self._job, size=len(self.place), hosts=hosts, variables=variables)

    def start(self, launched: Launched, over: Callable[[], None]) -> None:
        """`over` is called, by a thread, when the launcher has ended."""
        self.launched = launched

        def wait() -> None:
            launched.process.wait()
            over()

        self._waiter = threading.Thread(target=wait, daemon=True)
        self._waiter.start()

    def expect_why(self, otherwise: str) -> None:
        """Something ended, and whose fault that was should be known soon."""
        if self.end_by is None:
            self.end_by, self.cause = time.monotonic() + _EARLY_END, otherwise

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
        slot, how = self.place[fault.rank], describe(fault.status)
        end = f"ringrun: rank {fault.rank} of {len(self.place)} on {slot.host} failed first, with {how}"
        return [*self.launched.report.last_words(fault.rank), end]

    def release(self) -> None:
        """The launcher, whose ranks are all gone, is ended in the background."""
        process = self.launched.process

        def act() -> None:
            try:
                process.wait(_TERMINATE / 4)  # of itself: then it leaves nothing behind
            except subprocess.TimeoutExpired:
                process.terminate()
                wait_or_kill(process, _TERMINATE)

        threading.Thread(target=act, daemon=True).start()

    def drain(self) -> None:
        """Until the launcher has ended, and all of the output is shown."""
        self._waiter.join(4 * _TERMINATE)
        wait_or_kill(self.launched.process, 0.0)
        self.launched.drain()
