"""The driver: decides which ranks an elastic job has, generation by generation, until the program has finished.

Each generation is a separate MPI job, so no state of a broken one is reused. The weights outlive it
in memory of each host's agent. This process decides alone, without a quorum.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable
from typing import Any

from ringcomm._src.elastic.agent.processes import as_shell
from ringcomm._src.elastic.agent.protocol import CONSEQUENCE, ENTERED, FINISHED, LEFT, RESET
from ringcomm._src.elastic.driver.agents import Agents
from ringcomm._src.elastic.driver.generation import Generation
from ringcomm._src.elastic.driver.limits import Limits
from ringcomm._src.elastic.driver.membership import Membership, Slot
from ringcomm._src.elastic.driver.shims import Shims
from ringcomm._src.elastic.driver.snapshots import Snapshots
from ringcomm._src.launch.hosts import Host
from ringcomm._src.launch.job import Job
from ringcomm._src.launch.launched import Launched, say

_LEFT = 128 + signal.SIGTERM  # exit status of a job that was interrupted and can continue
_COMMITTED = (signal.SIGTERM, signal.SIGUSR1)  # signals after which a job may commit before it ends
_INTERRUPT = 2  # value of the keeper's word UPDATED


class Driver:
    """The main loop of an elastic job. `launch` starts a job's launcher."""

    def __init__(
        self,
        job: Job,
        membership: Membership,
        limits: Limits,
        agents: Agents,
        launch: Callable[[Job], Launched],
        verbose: bool,
    ) -> None:
        self._job, self._membership, self._limits, self._agents = job, membership, limits, agents
        self._launch, self._verbose = launch, verbose
        self._shims = Shims(agents)
        self._snapshots = Snapshots(agents, limits.snapshots, limits.snapshot_seconds)
        self._generation: Generation | None = None
        self._number = 0
        self._status: int | None = None  # exit status of the job, once known
        self._waiting_since = time.monotonic()
        self._why = ""  # reason for the next generation
        self._first_words: list[str] = []  # output of the first fault in a row of generations without a commit
        self._signal = 0
        self._leave_by: float | None = None
        # Handlers of the agents' messages for shims and snapshots.
        self._on_shim, self._on_helper_ended = self._shims.ask, self._shims.answer
        self._on_snapshot = self._snapshots.answered

    def run(self) -> int:
        """Runs the job, and returns its exit status."""
        events = self._agents.events
        for number in (*_COMMITTED, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda got, _frame: events.put(("signal", "", {"signal": got})))
        try:
            while self._status is None or self._snapshots.final_due:
                self._agents.want(list(dict.fromkeys(map(self._agents.alias, self._membership.hosts))))
                try:
                    event = events.get(timeout=self._limits.tick)
                except queue.Empty:
                    event = None
                while event is not None:
                    getattr(self, f"_on_{event[0]}")(*event[1:])
                    event = None if events.empty() else events.get()
                self._agents.tick()
                self._tick(time.monotonic())
        finally:
            if self._generation is not None:
                self._generation.launched.process.kill()
            self._agents.end()
        return self._status

    # ---- the clock ---------------------------------------------------------------------------------------------------
    def _tick(self, now: float) -> None:
        if self._status is not None:
            return
        generation = self._generation
        if generation is None:
            self._begin_if_possible(now)
        elif generation.ending is not None:
            if not generation.ending:
                self._conclude(generation)
        elif generation.end_by is not None and now > generation.end_by:
            self._end(generation, generation.cause)
            if len(generation.launched.report.hosts) < len(generation.place):
                say(*(text.rstrip("\n") for text in generation.launched.unshown))
        elif self._leave_by is not None and now > self._leave_by:
            self._end(generation, "it was interrupted")
        else:
            self._look_for_better(generation, now)
        self._snapshots.tick(now)

    def _look_for_better(self, generation: Generation, now: float) -> None:
        """Asks the ranks to commit and leave if better slots than those of this generation are available."""
        best = self._membership.choose(now)
        missing = [slot for slot in generation.place if slot not in best]
        if best and not generation.updated and (missing or len(best) > len(generation.place)):
            generation.updated = True
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
        number = self._number
        generation = Generation(number, place, self._job, self._agents.alias)
        names = [host.name for host in generation.hosts]
        where = ", ".join(f"{host.name}: {host.slots}" for host in generation.hosts)
        if self._why or self._verbose:
            after = f", after {self._why}" if self._why else ""
            say(f"ringrun: generation {number}: {len(place)} ranks ({where}){after}")
        for index, host in enumerate(names):
            keeps = not self._limits.copies or index < self._limits.copies
            self._agents.tell(host, {"begin": {"generation": number, "keeps": keeps}})
        launched = self._launch(generation.job(all(map(self._agents.is_local, names))))
        generation.start(launched, lambda: self._agents.events.put(("launcher", "", {"generation": number})))
        self._generation = generation

    # ---- events ------------------------------------------------------------------------------------------------------
    def _on_reached(self, host: str) -> None:
        self._mark(host, self._membership.reached)

    def _on_silent(self, host: str, why: str) -> None:
        self._mark(host, self._membership.lost)
        self._snapshots.final_due = False
        generation = self._generation
        if generation is not None and generation.ending is not None:
            generation.ending.discard(host)
        elif generation is not None and any(self._agents.alias(slot.host) == host for slot in generation.place):
            self._end(generation, f"host {host} was lost: {why}")
        elif self._verbose:
            say(f"ringrun: host {host}: {why}")

    def _mark(self, agent: str, act: Callable[[str], None]) -> None:
        for host in self._membership.known:
            if self._agents.alias(host) == agent:
                act(host)

    def _on_hosts(self, hosts: list[Host]) -> None:
        self._membership.found(hosts)
        for agent in self._agents.reached:
            self._mark(agent, self._membership.reached)

    def _on_discovery_failed(self, why: str) -> None:
        say(f"ringrun: the hosts stay as they are: {why}")

    def _current(self, number: int) -> Generation | None:
        """Returns the generation of this number, if it has not been concluded."""
        return self._generation if self._generation is not None and self._generation.number == number else None

    def _on_ended(self, _host: str, message: dict[str, Any]) -> None:
        if (generation := self._current(message["ended"]["generation"])) is None:
            return
        end = generation.ended(message["ended"])
        if generation.ending is None and end.own_fault:
            self._end(generation, "")
        elif generation.ending is None and generation.all_well:
            self._end(generation, "the hosts changed")
        elif not end.good:
            generation.expect_why("ranks were ended from outside")

    def _on_said(self, _host: str, message: dict[str, Any]) -> None:
        if (generation := self._current(message["generation"])) is None:
            return
        generation.said[message["rank"]] = message["said"]
        if message["said"] == CONSEQUENCE:
            generation.expect_why("ranks lost one another")
        elif message["said"] == LEFT and generation.ending is None:
            generation.left(message["rank"])
            self._end(generation, "")

    def _on_clear(self, host: str, message: dict[str, Any]) -> None:
        self._limits.committed(message["sealed"])
        if newest := message["held"]:
            self._mark(host, lambda name: self._membership.holds(name, tuple(newest[0])))
        if self._generation is not None and self._generation.ending is not None:
            self._generation.ending.discard(host)

    def _on_launcher(self, _host: str, message: dict[str, Any]) -> None:
        if generation := self._current(message["generation"]):
            generation.expect_why("its launcher ended")

    def _on_signal(self, _host: str, message: dict[str, Any]) -> None:
        again, self._signal, generation = bool(self._signal), message["signal"], self._generation
        if generation is None:
            self._left()
        elif again or self._signal not in _COMMITTED or ENTERED not in generation.said.values():
            self._end(generation, "it was interrupted")
        else:
            self._leave_by = time.monotonic() + self._limits.leave
            generation.updated = True
            self._agents.tell_all({"update": _INTERRUPT})

    # ---- ending a generation -----------------------------------------------------------------------------------------
    def _end(self, generation: Generation, why: str) -> None:
        self._why = why
        generation.ending = set(self._agents.tell_all({"end": generation.number}))

    def _conclude(self, generation: Generation) -> None:
        """Decides what follows a generation, after its last process has ended."""
        self._generation = None
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
        self._snapshots.request_final()
        committed = f"commit {self._limits.sealed} is kept" if self._limits.snapshots else "nothing is kept"
        self._finish(_LEFT, f"left at {signal.Signals(self._signal).name}; {committed}")

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
            self._finish((as_shell(fault.status) if fault is not None else 1) or 1, f"{self._why}; {stop}")

    def _finish(self, status: int, why: str = "") -> None:
        if status and self._first_words:
            say("-" * 80, *self._first_words)
        if why:
            say(f"ringrun: {why}")
        self._status = status
