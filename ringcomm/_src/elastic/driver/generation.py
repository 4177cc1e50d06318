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
from ringcomm._src.launch.launcher_process import LauncherProcess, wait_or_kill
from ringcomm._src.launch.rank import describe

_EARLY_END = 0.5  # seconds to wait for the reason when a launcher ends, or when ranks report lost ranks
_TERMINATE = 1.0  # seconds between SIGTERM and SIGKILL of a launcher


@dataclass(frozen=True)
class End:
    """The end of a rank."""

    rank: int
    status: int  # as subprocess's return code
    cause: str  # one of the causes in ringcomm._src.elastic.agent.protocol
    progress: str

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and self.progress not in (ENTERED, LEFT)

    @property
    def own_fault(self) -> bool:
        return not self.succeeded and self.cause in (OWN, STOPPED) and self.progress != CONSEQUENCE

    @property
    def description(self) -> str:
        if self.status == 0:
            return "ended inside elastic.run, with exit status 0"
        return (
            "was stopped (by SIGSTOP or a debugger)" if self.cause == STOPPED else f"ended with {describe(self.status)}"
        )


class Generation:
    """A generation. `slots`: slots of the ranks, in the order of ranks. `alias`: as in `Agents`."""

    launched: LauncherProcess

    def __init__(self, number: int, slots: list[Slot], job: Job, alias: Callable[[str], str]) -> None:
        self.number, self.slots, self._job = number, slots, job
        hosts: dict[str, int] = {}
        for slot in slots:
            hosts[alias(slot.host)] = hosts.get(alias(slot.host), 0) + 1
        self.hosts = [Host(name, count) for name, count in hosts.items()]
        # A launcher assigns ranks host by host.
        self.slots = [slot for host in self.hosts for slot in slots if alias(slot.host) == host.name]
        self.ends: dict[int, End] = {}
        self.progress: dict[int, str] = {}  # last report of each rank
        self.updated = False  # the ranks have been asked to commit and leave
        self.ending: set[str] | None = None  # agents that have not confirmed the end yet
        self.end_deadline: float | None = None  # deadline for finding the rank at fault
        self.cause = ""  # reason of the end if no rank at fault is found by the deadline

    def job(self, is_local: bool) -> Job:
        variables = {**self._job.variables, GENERATION: str(self.number)}
        hosts = () if is_local else tuple(self.hosts)
        return replace(self._job, size=len(self.slots), hosts=hosts, variables=variables)

    def start(self, launched: LauncherProcess, over: Callable[[], None]) -> None:
        """Starts to wait for the launcher. A thread calls `over` when the launcher has ended."""
        self.launched = launched

        def wait() -> None:
            launched.process.wait()
            over()

        self._waiter = threading.Thread(target=wait, daemon=True)
        self._waiter.start()

    def expect_reason(self, default: str) -> None:
        """Sets a deadline for the reason of an end; after it, `default` is the reason."""
        if self.end_deadline is None:
            self.end_deadline, self.cause = time.monotonic() + _EARLY_END, default

    def left(self, rank: int) -> None:
        """Records that a rank leaves inside elastic.run, before its process has ended."""
        self.ends.setdefault(rank, End(rank, 0, OWN, LEFT))

    def ended(self, message: dict[str, Any]) -> End:
        end = End(message["rank"], message["status"], message["cause"], message["progress"])
        return self.ends.setdefault(end.rank, end)

    @property
    def all_succeeded(self) -> bool:
        return len(self.ends) == len(self.slots) and all(end.succeeded for end in self.ends.values())

    def any_reported(self, report: str) -> bool:
        """Returns True if a rank ended with this report."""
        return any(end.progress == report for end in self.ends.values())

    @property
    def first_fault(self) -> End | None:
        """The end of the rank that caused the other ends, or None.

        Ranks that were killed precede ranks that ended themselves, because the latter may
        have reacted to the loss of a rank.
        """
        faults = [end for end in self.ends.values() if end.own_fault]
        return min(faults, key=lambda end: end.status >= 0, default=None)

    def last_output(self, fault: End) -> list[str]:
        """Returns the last output of a rank that failed by its own fault, and how it ended.

        The output is its traceback or its last lines.
        """
        slot, description = self.slots[fault.rank], describe(fault.status)
        end = f"ringrun: rank {fault.rank} of {len(self.slots)} on {slot.host} failed first, with {description}"
        return [*self.launched.report.last_output(fault.rank), end]

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
