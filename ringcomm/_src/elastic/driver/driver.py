"""The driver: decides which ranks each generation of an elastic job has.

Each generation is a separate MPI job, so no state of a broken one is reused. The weights outlive a
generation in the memory of each host's agent. This process decides alone, without a quorum.
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
from ringcomm._src.launch.launcher_process import LauncherProcess, print_stderr

_LEFT = 128 + signal.SIGTERM  # exit status of a job that was interrupted and can continue
_COMMITTED = (signal.SIGTERM, signal.SIGUSR1)  # signals after which a job may commit before it ends
_INTERRUPT = 2  # value of the word UPDATED in agent/commit_store.py


class Driver:
    """The main loop of an elastic job. `launch` starts a job's launcher."""

    def __init__(
        self,
        job: Job,
        membership: Membership,
        limits: Limits,
        agents: Agents,
        launch: Callable[[Job], LauncherProcess],
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
        self._reason = ""  # reason for the next generation
        self._first_output: list[str] = []  # output of the first fault in a row of generations without a commit
        self._signal = 0
        self._leave_deadline: float | None = None
        # Handlers of the agents' messages for shims and snapshots.
        self._on_shim, self._on_helper_ended = self._shims.start_helper, self._shims.report_status
        self._on_snapshot = self._snapshots.handle_reply

    def run(self) -> int:
        """Runs the job, and returns its exit status."""
        events = self._agents.events
        for number in (*_COMMITTED, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda received, _frame: events.put(("signal", "", {"signal": received})))
        try:
            while self._status is None or self._snapshots.final_due:
                self._agents.start_missing(list(dict.fromkeys(map(self._agents.alias, self._membership.hosts))))
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
        elif generation.end_deadline is not None and now > generation.end_deadline:
            self._end(generation, generation.cause)
            if len(generation.launched.report.hosts) < len(generation.slots):
                print_stderr(*(text.rstrip("\n") for text in generation.launched.unshown))
        elif self._leave_deadline is not None and now > self._leave_deadline:
            self._end(generation, "the job was interrupted")
        else:
            self._request_better_slots(generation, now)
        self._snapshots.tick(now)

    def _request_better_slots(self, generation: Generation, now: float) -> None:
        """Asks the ranks to commit and leave if slots better than theirs are available."""
        best = self._membership.choose(now)
        missing = [slot for slot in generation.slots if slot not in best]
        if best and not generation.updated and (missing or len(best) > len(generation.slots)):
            generation.updated = True
            self._agents.send_all({"update": 1})

    # ---- beginning a generation --------------------------------------------------------------------------------------
    def _begin_if_possible(self, now: float) -> None:
        slots = self._membership.choose(now)
        enough = len(slots) >= self._limits.start if self._number == 0 else bool(slots)
        if slots and (enough or not self._agents.starting()) and now >= self._limits.not_before:
            self._begin(slots)
        elif now - self._waiting_since > self._limits.timeout:
            hosts = ", ".join(self._membership.hosts) or "none"
            self._finish(
                1,
                f"waited {self._limits.timeout:g} s (--elastic-timeout) for {self._membership.minimum} slots "
                f"(--min-np), but the number of reachable slots is {self._membership.available()} (hosts: {hosts})",
            )

    def _begin(self, slots: list[Slot]) -> None:
        self._number += 1
        number = self._number
        generation = Generation(number, slots, self._job, self._agents.alias)
        names = [host.name for host in generation.hosts]
        where = ", ".join(f"{host.name}: {host.slots}" for host in generation.hosts)
        if self._reason or self._verbose:
            after = f", after {self._reason}" if self._reason else ""
            print_stderr(f"ringrun: generation {number}: {len(slots)} ranks ({where}){after}")
        for index, host in enumerate(names):
            stores_commits = not self._limits.copies or index < self._limits.copies
            self._agents.send(host, {"begin": {"generation": number, "stores_commits": stores_commits}})
        launched = self._launch(generation.job(all(map(self._agents.is_local, names))))
        generation.start(launched, lambda: self._agents.events.put(("launcher", "", {"generation": number})))
        self._generation = generation

    # ---- events ------------------------------------------------------------------------------------------------------
    def _on_reached(self, host: str) -> None:
        self._mark(host, self._membership.reached)

    def _on_silent(self, host: str, reason: str) -> None:
        self._mark(host, self._membership.lost)
        self._snapshots.final_due = False
        generation = self._generation
        if generation is not None and generation.ending is not None:
            generation.ending.discard(host)
        elif generation is not None and any(self._agents.alias(slot.host) == host for slot in generation.slots):
            self._end(generation, f"host {host} was lost: {reason}")
        elif self._verbose:
            print_stderr(f"ringrun: host {host}: {reason}")

    def _mark(self, agent: str, record: Callable[[str], None]) -> None:
        for host in self._membership.known:
            if self._agents.alias(host) == agent:
                record(host)

    def _on_hosts(self, hosts: list[Host]) -> None:
        self._membership.found(hosts)
        for agent in self._agents.reached:
            self._mark(agent, self._membership.reached)

    def _on_discovery_failed(self, reason: str) -> None:
        print_stderr(f"ringrun: host discovery failed, so the hosts remain unchanged: {reason}")

    def _current(self, number: int) -> Generation | None:
        """Returns the generation of this number, if it has not been concluded."""
        return self._generation if self._generation is not None and self._generation.number == number else None

    def _on_ended(self, _host: str, message: dict[str, Any]) -> None:
        if (generation := self._current(message["ended"]["generation"])) is None:
            return
        end = generation.ended(message["ended"])
        if generation.ending is None and end.own_fault:
            self._end(generation, "")
        elif generation.ending is None and generation.all_succeeded:
            self._end(generation, "the hosts changed")
        elif not end.succeeded:
            generation.expect_reason("another process ended ranks")

    def _on_progress(self, _host: str, message: dict[str, Any]) -> None:
        if (generation := self._current(message["generation"])) is None:
            return
        generation.progress[message["rank"]] = message["progress"]
        if message["progress"] == CONSEQUENCE:
            generation.expect_reason("ranks lost the connection to other ranks")
        elif message["progress"] == LEFT and generation.ending is None:
            generation.left(message["rank"])
            self._end(generation, "")

    def _on_clear(self, host: str, message: dict[str, Any]) -> None:
        self._limits.committed(message["sealed"])
        if newest := message["newest"]:
            self._mark(host, lambda name: self._membership.record_commit(name, tuple(newest[0])))
        if self._generation is not None and self._generation.ending is not None:
            self._generation.ending.discard(host)

    def _on_launcher(self, _host: str, message: dict[str, Any]) -> None:
        if generation := self._current(message["generation"]):
            generation.expect_reason("the launcher ended")

    def _on_signal(self, _host: str, message: dict[str, Any]) -> None:
        repeated, self._signal, generation = bool(self._signal), message["signal"], self._generation
        if generation is None:
            self._end_interrupted()
        elif repeated or self._signal not in _COMMITTED or ENTERED not in generation.progress.values():
            self._end(generation, "the job was interrupted")
        else:
            self._leave_deadline = time.monotonic() + self._limits.leave
            generation.updated = True
            self._agents.send_all({"update": _INTERRUPT})

    # ---- ending a generation -----------------------------------------------------------------------------------------
    def _end(self, generation: Generation, reason: str) -> None:
        self._reason = reason
        generation.ending = set(self._agents.send_all({"end": generation.number}))

    def _conclude(self, generation: Generation) -> None:
        """Decides what follows a generation, after its last process has ended."""
        self._generation = None
        self._shims.close()
        generation.release()
        if fault := generation.first_fault:
            slot = generation.slots[fault.rank]
            self._membership.failed(slot, time.monotonic())
            self._reason = f"rank {fault.rank} of {len(generation.slots)} on {slot.host} {fault.description}"
        self._waiting_since = time.monotonic()
        if self._signal:
            generation.drain()
            self._end_interrupted()
        elif generation.all_succeeded and not generation.any_reported(RESET):
            generation.drain()
            self._finish(0)
        else:
            self._continue_job(generation)

    def _end_interrupted(self) -> None:
        if self._signal not in _COMMITTED:
            self._finish(128 + self._signal, f"ended by {signal.Signals(self._signal).name}")
            return
        self._snapshots.request_final()
        if not self._limits.snapshots:
            committed = "no commit is kept (--snapshots)"
        else:
            committed = f"commit {self._limits.sealed} is kept" if self._limits.sealed >= 0 else "no commit was made"
        self._finish(_LEFT, f"the job ended after {signal.Signals(self._signal).name}; {committed}")

    def _continue_job(self, generation: Generation) -> None:
        fault = generation.first_fault
        without_elastic = not any(progress in (ENTERED, RESET, FINISHED) for progress in generation.progress.values())
        stop = self._limits.after_generation(by_fault=not generation.all_succeeded, without_elastic=without_elastic)
        if fault is not None and not self._first_output:
            generation.drain()
            self._first_output = generation.last_output(fault)
        if self._limits.progress:
            self._first_output = []
        if not stop and (warning := self._limits.warning()):
            print_stderr(f"ringrun: {warning}")
        if stop:
            generation.drain()
            self._finish((as_shell(fault.status) if fault is not None else 1) or 1, f"{self._reason}; {stop}")

    def _finish(self, status: int, reason: str = "") -> None:
        if status and self._first_output:
            print_stderr("-" * 80, *self._first_output)
        if reason:
            print_stderr(f"ringrun: {reason}")
        self._status = status
