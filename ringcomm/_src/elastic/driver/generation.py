"""One generation: its ranks under a separate launcher, and how each rank ended.

The driver creates it, forwards events to it, and asks it which rank failed first.
"""

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

_EARLY_END = 0.5  # seconds to wait for the reason when a launcher ends, or when ranks report lost ranks
_TERMINATE = 1.0  # seconds between SIGTERM and SIGKILL of a launcher


@dataclass(frozen=True)
class End:
    """The end of a rank."""

    rank: int
    status: int  # as subprocess's return code
    cause: str  # one of the causes in ringcomm._src.elastic.agent.protocol
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
    """A generation. `place`: slots of the ranks, in the order of ranks. `alias`: as in `Agents`."""

    launched: Launched

    def __init__(self, number: int, place: list[Slot], job: Job, alias: Callable[[str], str]) -> None:
        self.number, self.place, self._job = number, place, job
        hosts: dict[str, int] = {}
        for slot in place:
            hosts[alias(slot.host)] = hosts.get(alias(slot.host), 0) + 1
        self.hosts = [Host(name, count) for name, count in hosts.items()]
        # A launcher assigns ranks host by host.
        self.place = [slot for host in self.hosts for slot in place if alias(slot.host) == host.name]
        self.ends: dict[int, End] = {}
        self.said: dict[int, str] = {}  # last report of each rank
        self.updated = False  # the ranks have been asked to commit and leave
        self.ending: set[str] | None = None  # agents that have not confirmed the end yet
        self.end_by: float | None = None  # deadline for finding the rank at fault;
        self.cause = ""  # the reason after the deadline

    def job(self, everything_here: bool) -> Job:
        variables = {**self._job.variables, GENERATION: str(self.number)}
        hosts = () if everything_here else tuple(self.hosts)
        return replace(self._job, size=len(self.place), hosts=hosts, variables=variables)

    def start(self, launched: Launched, over: Callable[[], None]) -> None:
        """Starts to wait for the launcher. A thread calls `over` when the launcher has ended."""
        self.launched = launched

        def wait() -> None:
            launched.process.wait()
            over()

        self._waiter = threading.Thread(target=wait, daemon=True)
        self._waiter.start()

    def expect_why(self, otherwise: str) -> None:
        """Sets a deadline for the reason why a process ended. After it, the reason is `otherwise`."""
        if self.end_by is None:
            self.end_by, self.cause = time.monotonic() + _EARLY_END, otherwise

    def left(self, rank: int) -> None:
        """Records that a rank leaves inside elastic.run, before its process has ended."""
        self.ends.setdefault(rank, End(rank, 0, OWN, LEFT))

    def ended(self, message: dict[str, Any]) -> End:
        end = End(message["rank"], message["status"], message["cause"], message["said"])
        return self.ends.setdefault(end.rank, end)

    @property
    def all_well(self) -> bool:
        return len(self.ends) == len(self.place) and all(end.good for end in self.ends.values())

    def any_said(self, what: str) -> bool:
        """Returns True if a rank ended with this report."""
        return any(end.said == what for end in self.ends.values())

    @property
    def first_fault(self) -> End | None:
        """The rank's end that caused the other ends, or None.

        Ranks that were killed precede ranks that ended themselves, because these may have reacted
        to the loss.
        """
        faults = [end for end in self.ends.values() if end.own_fault]
        return min(faults, key=lambda end: end.status >= 0, default=None)

    def last_words(self, fault: End) -> list[str]:
        """Returns the last output of a rank that failed by its own fault, and how it ended.

        The output is its traceback or its last lines.
        """
        slot, how = self.place[fault.rank], describe(fault.status)
        end = f"ringrun: rank {fault.rank} of {len(self.place)} on {slot.host} failed first, with {how}"
        return [*self.launched.report.last_words(fault.rank), end]

    def release(self) -> None:
        """Ends the launcher in the background. All of its ranks have ended."""
        process = self.launched.process

        def act() -> None:
            try:
                process.wait(_TERMINATE / 4)  # lets it end by itself, so that it leaves nothing behind
            except subprocess.TimeoutExpired:
                process.terminate()
                wait_or_kill(process, _TERMINATE)

        threading.Thread(target=act, daemon=True).start()

    def drain(self) -> None:
        """Waits until the launcher has ended and all output is shown."""
        self._waiter.join(4 * _TERMINATE)
        wait_or_kill(self.launched.process, 0.0)
        self.launched.drain()
