"""Faults from outside a job: processes, hosts, links, host discovery. job.py drives them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import processes

_BLINK = 0.7  # seconds for which a host is listed
_FAILS, _HANGS = "fails", "hangs"


class Hitter:
    """Carries out a plan's faults, when a rank has reached their phase, or after a launch."""

    def __init__(self, job: Any) -> None:
        self._job, self._plan = job, job.plan
        self.times: list[tuple[str, int, float]] = []  # kind, generation and time of each fault
        self._threads: list[threading.Thread] = []
        self._launches = 0

    @property
    def done(self) -> set[str]:
        return {kind for kind, _, _ in self.times}

    def told(self, note: dict[str, Any]) -> None:
        """Carries out a fault after the note of a rank that has reached its phase."""
        fault = self._plan.faults[note["number"]]
        if fault["kind"] in ("raise", "exit", "refuse") or (fault["kind"] == "kill" and not fault["delay"]):
            self.times.append((fault["kind"], note["gen"], note["t"]))
        else:
            self._later(fault, fault["delay"], note)

    def look(self) -> None:
        """Carries out the next fault that follows a launch, if it is due."""
        launches = self._job.output.read_bytes().count(b"ringrun: generation ")
        new, self._launches = launches > self._launches, launches
        fault = self._next_launch()
        if fault is not None and (fault["step"] < 0 or (new and fault["step"] <= self._furthest())):
            self._claim(fault)
            self._later(fault, fault["delay"], {"gen": launches, "pid": 0, "rank": -1})

    def _next_launch(self) -> dict[str, Any] | None:
        for number, fault in enumerate(self._plan.faults):
            if fault["phase"] == "launch" and not (self._job.folder / f"claimed-{number}").exists():
                return {**fault, "number": number}
        return None

    def _claim(self, fault: dict[str, Any]) -> None:
        with contextlib.suppress(FileExistsError):
            (self._job.folder / f"claimed-{fault['number']}").touch(exist_ok=False)

    def _furthest(self) -> int:
        try:
            return int((self._job.folder / "steps").stat().st_size)
        except OSError:
            return -1

    def _later(self, fault: dict[str, Any], delay: float, note: dict[str, Any]) -> None:
        """Carries out a fault in a thread, because some faults take time."""

        def act() -> None:
            time.sleep(delay)
            if self._act(fault, note):
                self.times.append((fault["kind"], note["gen"], moment))

        moment = time.time() + delay
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        self._threads.append(thread)

    def end(self) -> None:
        """Waits until all faults are over."""
        for thread in self._threads:
            thread.join()

    # ---- faults ------------------------------------------------------------------------------------------------------
    def _act(self, fault: dict[str, Any], note: dict[str, Any]) -> bool:
        """Returns whether the fault took place."""
        kind = fault["kind"]
        if kind in _KILLS and not note["pid"]:
            return self._kill_one("trainer", fault)
        if kind in _KILLS:
            return _KILLS[kind](self, note)
        if kind in ("link", "flap", "partition", "crash"):
            return bool(self._job.lab.hit(kind, fault["draw"], self._job.mark))
        if kind in ("slots", "blink", "discovery_fails", "discovery_hangs"):
            return self._discover(kind, fault)
        return self._kill_one(kind, fault)

    def _kill_one(self, role: str, fault: dict[str, Any]) -> bool:
        found = [it for it in processes.of_job(self._job.mark) if it.role == role]
        if not found:
            return False
        return processes.kill(random.Random(fault["draw"]).choice(sorted(found, key=lambda it: it.pid)).pid)

    def _ranks_with(self, note: dict[str, Any]) -> list[tuple[int, int]]:
        """Returns the generation's process ids with namespaces; the note's rank first."""
        mine = note["pid"], note["space"]
        others = {(other["pid"], other["space"]) for other in self._job.notes if other["gen"] == note["gen"]} - {mine}
        return [mine, *sorted(others)]

    def _signal(self, ranks: list[tuple[int, int]], number: int = signal.SIGKILL) -> bool:
        """Sends the signal to the ranks. Returns whether any of them existed."""
        pids = [processes.seen_here(self._job.mark, *rank) for rank in ranks]
        return sum(processes.kill(pid, number) for pid in pids if pid) > 0

    def _kill(self, note: dict[str, Any]) -> bool:
        return self._signal(self._ranks_with(note)[:1])

    def _kill_two(self, note: dict[str, Any]) -> bool:
        return self._signal(self._ranks_with(note)[:2])

    def _kill_but_one(self, note: dict[str, Any]) -> bool:
        return self._signal(self._ranks_with(note)[:-1])

    def _stop(self, note: dict[str, Any]) -> bool:
        return self._signal(self._ranks_with(note)[:1], signal.SIGSTOP)

    def _discover(self, kind: str, fault: dict[str, Any]) -> bool:
        folder = self._job.folder
        hosts = folder / "hosts"
        before = hosts.read_text()
        drawn = random.Random(fault["draw"])
        if kind == "slots":
            _replace(hosts, f"localhost:{drawn.randint(self._plan.least, 4)}\n")
            return hosts.read_text() != before
        if kind == "blink":
            _replace(hosts, f"{before}127.0.0.1:1\n")
            time.sleep(_BLINK)
            _replace(hosts, before)
            return True
        flag = folder / (_FAILS if kind == "discovery_fails" else _HANGS)
        flag.touch()
        time.sleep(2.5)
        flag.unlink()
        return True


def _replace(path: Any, text: str) -> None:
    part = f"{path}.new"
    with open(part, "w") as file:
        file.write(text)
    os.replace(part, path)


_KILLS: dict[str, Callable[[Hitter, dict[str, Any]], bool]] = {
    "kill": Hitter._kill,
    "kill_two": Hitter._kill_two,
    "kill_but_one": Hitter._kill_but_one,
    "stop": Hitter._stop,
}
