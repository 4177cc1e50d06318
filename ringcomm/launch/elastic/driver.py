"""Decides which ranks an elastic job has, one generation after the other, until the program has finished.

Each membership is an MPI job of its own, so nothing of a broken one is used again. The weights outlive them in memory
that each host's agent keeps. Only this process decides: there is no quorum, and no second opinion.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable
from typing import Any

from ringcomm.agent.said import CONSEQUENCE, ENTERED, FINISHED, LEFT, RESET
from ringcomm.launch.elastic.agents import Agents
from ringcomm.launch.elastic.generation import Generation
from ringcomm.launch.elastic.limits import Limits
from ringcomm.launch.elastic.membership import Membership, Slot
from ringcomm.launch.elastic.shims import Shims
from ringcomm.launch.hosts import Host
from ringcomm.launch.job import Job, Line
from ringcomm.launch.launched import say

_EARLY_END = 0.5  # seconds in which it must be known why a launcher ended, or why ranks miss others
_LEFT = 128 + signal.SIGTERM  # the status of a job that was interrupted, and can go on
_COMMITTED = (signal.SIGTERM, signal.SIGUSR1)  # what interrupts a job that may commit first
_INTERRUPT = 2  # of ringcomm.agent.keeper's word


class Driver:
    """`launch` gives the command line for a job; `alias` one name for the names of one machine."""

    def __init__(
        self,
        job: Job,
        membership: Membership,
        limits: Limits,
        agents: Agents,
        events: queue.SimpleQueue[tuple[Any, ...]],
        launch: Callable[[Job], Line],
        alias: Callable[[str], str],
        is_local: Callable[[str], bool],
        verbose: bool,
    ) -> None:
        self._job, self._membership, self._limits, self._agents = job, membership, limits, agents
        self._events, self._launch, self._alias, self._is_local = events, launch, alias, is_local
        self._verbose = verbose
        self._generation: Generation | None = None
        self._ending: set[str] | None = None  # agents whose word is awaited that the generation is over
        self._number = 0
        self._status: int | None = None  # of the whole job, once known
        self._waiting_since = time.monotonic()
        self._why = ""  # there is a next generation
        self._first_words: list[str] = []  # of the first fault in a row of generations without a commit
        self._signal = 0
        self._leave_by: float | None = None
        self._updated = False
        self._end_by: float | None = None  # if it is not known by then whose fault it was, that something ended,
        self._cause = ""  # then this is the reason
        self._shims = Shims(agents)
        self._snapshot_at = time.monotonic()
        self._snapshot_owed = False

    def run(self) -> int:
        """The exit status of the job."""
        for number in (*_COMMITTED, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda got, _frame: self._events.put(("signal", "", {"signal": got})))
        try:
            while self._status is None or self._snapshot_owed:
                self._agents.want(list(dict.fromkeys(map(self._alias, self._membership.hosts))))
                try:
                    event = self._events.get(timeout=self._limits.tick)
                except queue.Empty:
                    event = None
                while event is not None:
                    getattr(self, f"_on_{event[0]}")(*event[1:])
                    event = None if self._events.empty() else self._events.get()
                self._agents.tick()
                self._tick(time.monotonic())
        finally:
            generation = self._generation
            if generation is not None and generation.launched is not None:
                generation.launched.process.kill()
            self._agents.end()
        return self._status

    # ---- the clock ---------------------------------------------------------------------------------------------------
    def _tick(self, now: float) -> None:
        if self._status is not None:
            return
        if self._generation is None:
            self._begin_if_possible(now)
        elif self._ending is not None:
            if not self._ending:
                self._conclude()
        elif self._end_by is not None and now > self._end_by:
            self._end(self._cause)
            launched = self._generation.launched
            if launched is not None and len(launched.report.hosts) < len(self._generation.place):
                say(*(text.rstrip("\n") for text in launched.unshown))
        elif self._leave_by is not None and now > self._leave_by:
            self._end("it was interrupted")
        else:
            self._look_for_better(now)
        if self._limits.snapshot_seconds and now - self._snapshot_at > self._limits.snapshot_seconds:
            self._snapshot_at = now
            self._ask_for_snapshot()

    def _look_for_better(self, now: float) -> None:
        """Whether there are other slots than those of this generation: then its ranks are to commit and leave."""
        assert self._generation is not None
        best = self._membership.choose(now)
        missing = [slot for slot in self._generation.place if slot not in best]
        if best and not self._updated and (missing or len(best) > len(self._generation.place)):
            self._updated = True
            self._agents.tell_all({"update": 1})

    # ---- beginning a generation --------------------------------------------------------------------------------------
    def _begin_if_possible(self, now: float) -> None:
        place = self._membership.choose(now)
        enough = len(place) >= self._limits.start if self._number == 0 else bool(place)
        if place and (enough or not self._agents.starting()) and now >= self._limits.not_before:
            self._begin(place)
        elif now - self._waiting_since > self._limits.timeout:
            hosts = ", ".join(self._membership.hosts) or "none"
            self._finish(
                1,
                f"waited {self._limits.timeout:g} s for {self._membership.minimum} slots (--min-np), and there are "
                f"{self._membership.available()} that can be reached (hosts: {hosts})",
            )

    def _begin(self, place: list[Slot]) -> None:
        self._number += 1
        generation = Generation(self._number, place, self._job, self._alias)
        self._generation, self._updated = generation, False
        self._end_by = None
        names = [host.name for host in generation.hosts]
        where = ", ".join(f"{host.name}: {host.slots}" for host in generation.hosts)
        if self._why or self._verbose:
            after = f", after {self._why}" if self._why else ""
            say(f"ringrun: generation {self._number}: {len(place)} ranks ({where}){after}")
        for index, host in enumerate(names):
            keeps = not self._limits.copies or index < self._limits.copies
            self._agents.tell(host, {"begin": {"generation": self._number, "keeps": keeps}})
        local = all(self._is_local(name) for name in names)
        number = self._number
        line = self._launch(generation.job(local))
        generation.start(line, self._verbose, lambda: self._events.put(("launcher", "", {"generation": number})))

    # ---- events ------------------------------------------------------------------------------------------------------
    def _on_reached(self, host: str) -> None:
        self._mark(host, self._membership.reached)

    def _on_silent(self, host: str, why: str) -> None:
        self._mark(host, self._membership.lost)
        self._snapshot_owed = False
        generation = self._generation
        if self._ending is not None:
            self._ending.discard(host)
        elif generation is not None and any(self._alias(slot.host) == host for slot in generation.place):
            self._end(f"host {host} was lost: {why}")
        elif self._verbose:
            say(f"ringrun: host {host}: {why}")

    def _mark(self, agent: str, act: Callable[[str], None]) -> None:
        for host in self._membership.known:
            if self._alias(host) == agent:
                act(host)

    def _on_hosts(self, hosts: list[Host]) -> None:
        self._membership.found(hosts)
        for agent in self._agents.reached:
            self._mark(agent, self._membership.reached)

    def _on_discovery_failed(self, why: str) -> None:
        say(f"ringrun: the hosts stay as they are: {why}")

    def _on_ended(self, _host: str, message: dict[str, Any]) -> None:
        generation = self._generation
        if generation is None or message["ended"]["generation"] != generation.number:
            return
        end = generation.ended(message["ended"])
        if self._ending is None and end.own_fault:
            self._end("")
        elif self._ending is None and generation.all_well:
            self._end("the hosts changed")
        elif not end.good:
            self._expect_why("ranks were ended from outside")

    def _on_said(self, _host: str, message: dict[str, Any]) -> None:
        generation = self._generation
        if generation is None or message["generation"] != generation.number:
            return
        generation.said[message["rank"]] = message["said"]
        if message["said"] == CONSEQUENCE:
            self._expect_why("ranks lost one another")
        elif message["said"] == LEFT and self._ending is None:
            generation.left(message["rank"])
            self._end("")

    def _on_clear(self, host: str, message: dict[str, Any]) -> None:
        self._limits.committed(message["sealed"])
        if newest := message["held"]:
            self._mark(host, lambda name: self._membership.holds(name, tuple(newest[0])))
        if self._ending is not None:
            self._ending.discard(host)

    def _on_launcher(self, _host: str, message: dict[str, Any]) -> None:
        if self._generation is not None and self._generation.number == message["generation"]:
            self._expect_why("its launcher ended")

    def _expect_why(self, otherwise: str) -> None:
        """Something ended, and whose fault that was should be known soon."""
        if self._end_by is None:
            self._end_by, self._cause = time.monotonic() + _EARLY_END, otherwise

    def _on_shim(self, host: str, message: dict[str, Any]) -> None:
        self._shims.ask(host, message)

    def _on_helper_ended(self, _host: str, message: dict[str, Any]) -> None:
        self._shims.answer(message)

    def _on_snapshot(self, _host: str, message: dict[str, Any]) -> None:
        self._snapshot_owed = False
        if "why" in message:
            say(f"ringrun: no snapshot was written: {message['why']}")

    def _on_signal(self, _host: str, message: dict[str, Any]) -> None:
        again, self._signal = bool(self._signal), message["signal"]
        entered = self._generation is not None and ENTERED in self._generation.said.values()
        if again or self._signal not in _COMMITTED or not entered:
            if self._generation is None:
                self._left()
            else:
                self._end("it was interrupted")
            return
        self._leave_by = time.monotonic() + self._limits.leave
        self._updated = True
        self._agents.tell_all({"update": _INTERRUPT})

    # ---- ending one --------------------------------------------------------------------------------------------------
    def _end(self, why: str) -> None:
        assert self._generation is not None
        self._why = why
        self._ending = set(self._agents.tell_all({"end": self._generation.number}))

    def _conclude(self) -> None:
        """No process of the generation is left."""
        generation, self._generation, self._ending = self._generation, None, None
        assert generation is not None
        self._shims.close()
        generation.release()
        if fault := generation.first_fault:
            slot = generation.place[fault.rank]
            self._membership.failed(slot, time.monotonic())
            self._why = f"rank {fault.rank} of {len(generation.place)} on {slot.host} {fault.how}"
        self._waiting_since = time.monotonic()
        if self._signal:
            generation.drain()
            self._left()
        elif generation.all_well and not generation.any_said(RESET):
            generation.drain()
            self._finish(0)
        else:
            self._go_on(generation)

    def _left(self) -> None:
        if self._signal not in _COMMITTED:
            self._finish(128 + self._signal, f"ended by {signal.Signals(self._signal).name}")
            return
        if self._limits.snapshots:
            self._snapshot_owed = True
            self._ask_for_snapshot()
        committed = f"commit {self._limits.sealed} is kept" if self._limits.snapshots else "nothing is kept"
        self._finish(_LEFT, f"left at {signal.Signals(self._signal).name}; {committed}")

    def _ask_for_snapshot(self) -> None:
        hosts = self._agents.reached
        if hosts and self._limits.snapshots:
            self._agents.tell(hosts[0], {"snapshot": self._limits.snapshots})
        else:
            self._snapshot_owed = False

    def _go_on(self, generation: Generation) -> None:
        fault = generation.first_fault
        plain = not any(said in (ENTERED, RESET, FINISHED) for said in generation.said.values())
        stop = self._limits.after_generation(by_fault=not generation.all_well, plain=plain)
        if fault is not None and not self._first_words:
            generation.drain()
            self._first_words = generation.last_words(fault)
        if self._limits.progress:
            self._first_words = []
        if not stop and (doubts := self._limits.doubts()):
            say(f"ringrun: {doubts}")
        if stop:
            generation.drain()
            status = fault.status if fault is not None else 1
            self._finish((status if status >= 0 else 128 - status) or 1, f"{self._why}; {stop}")

    def _finish(self, status: int, why: str = "") -> None:
        if status and self._first_words:
            say("-" * 80, *self._first_words)
        if why:
            say(f"ringrun: {why}")
        self._status = status
