"""One job with its faults: starts it, observes it, injects the faults, and checks the outcome."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import leftovers
import processes
import replay
from faults import Hitter
from launching import environment
from plans import Plan
from replay import Wrong

HERE = Path(__file__).resolve().parent
LIMIT = 180.0  # seconds; a job takes only a few, so a longer one hangs, even on a busy machine
_LOOK = 0.004


@dataclass
class Outcome:
    plan: Plan
    wrong: str = ""
    history: list[tuple[int, int]] = field(default_factory=list)
    recoveries: dict[str, list[float]] = field(default_factory=dict)  # seconds, by the kind of fault
    hit: int = 0  # number of faults that took place
    seconds: float = 0.0


class Job:
    """A job. `lab`: the simulated hosts (`Lab`); None: this machine."""

    def __init__(self, plan: Plan, folder: Path, lab: Any = None) -> None:
        self.plan, self.folder, self.lab = plan, folder, lab
        self.mark = f"{os.getpid()}-{plan.seed}"
        self.notes: list[dict[str, Any]] = []
        self._read_to = 0  # bytes of the log read so far
        self.output = folder / "output"
        folder.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    # ---- command line ------------------------------------------------------------------------------------------------
    def command(self) -> list[str]:
        plan = self.plan
        words = [sys.executable, "-m", "ringcomm", "run", "--min-np", str(plan.least), "--verbose"]
        if plan.cooldown:
            words += ["--blacklist-cooldown-range", "0.2", "0.5"]
        if plan.discovery:
            words += ["--host-discovery-script", str(self._discovery()), "--max-np", "4"]
        elif self.lab is None:
            words += ["-np", str(plan.size)]
        if plan.snapshots:
            words += ["--snapshots", str(self._snapshots()), "--snapshot-seconds", "0.2"]
        if self.lab is not None:
            words += self.lab.options()
        return [*words, "python", str(HERE / "program.py")]

    def _discovery(self) -> Path:
        script = self.folder / "discover"
        (self.folder / "hosts").write_text(f"localhost:{self.plan.size}\n")
        script.write_text(
            f"#!/bin/sh\ncd {self.folder}\n[ -e fails ] && exit 1\n[ -e hangs ] && sleep 3\nexec cat hosts\n"
        )
        script.chmod(0o755)
        return script

    def _snapshots(self) -> Path:
        disk = self.folder / "snapshots"
        disk.mkdir()
        if self.plan.snapshots == "small":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)], check=True)
        return disk

    def variables(self) -> dict[str, str]:
        return {
            **environment(),
            "PYTHONFAULTHANDLER": "1",
            processes.MARK: self.mark,
            "CHAOS_FOLDER": str(self.folder),
            "CHAOS_PLAN": json.dumps(self.plan.faults),
            "CHAOS_SHAPE": ",".join(map(str, self.plan.shape)),
            "CHAOS_TORCH": str(int(self.plan.torch)),
        }

    # ---- while it runs -----------------------------------------------------------------------------------------------
    def run(self) -> Outcome:
        outcome = Outcome(self.plan)
        began = time.time()
        try:
            status = self._watch()
            self._judge(status, outcome)
        except Wrong as wrong:
            outcome.wrong = str(wrong)
        finally:
            processes.kill_job(self.mark)
            if outcome.wrong:
                leftovers.clear()
            if self.plan.snapshots == "small":
                subprocess.run(["umount", str(self.folder / "snapshots")], check=False)
        outcome.seconds = time.time() - began
        (self.folder / "plan").write_text(json.dumps(asdict(self.plan), indent=1))
        return outcome

    def _watch(self) -> int:
        command = self.command()
        line = command if self.lab is None else self.lab.enter(command)
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                line,
                env=self.variables(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.hitter = Hitter(self)
        until = time.monotonic() + LIMIT
        while (status := self.process.poll()) is None:
            self._read()
            self.hitter.look()
            if time.monotonic() > until:
                raise Wrong(f"hangs: {self._who_is_left()}")
            time.sleep(_LOOK)
        self.hitter.end()
        self._read()
        return status

    def _read(self) -> None:
        """Reads the complete lines that were added to the log."""
        try:
            with open(self.folder / "log", "rb") as file:
                file.seek(self._read_to)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for note in map(json.loads, whole.splitlines()):
            self.notes.append(note)
            if note["what"] == "fault":
                self.hitter.told(note)

    def _who_is_left(self) -> str:
        return "; ".join(f"{it.role} {it.pid} {it.state}" for it in processes.of_job(self.mark))

    # ---- invariants --------------------------------------------------------------------------------------------------
    def _judge(self, status: int, outcome: Outcome) -> None:
        outcome.hit = len(self.hitter.times)
        outcome.recoveries = self._recoveries()
        expected = -signal.SIGKILL if "driver" in self.hitter.done else 0
        if status != expected:
            raise Wrong(f"ended with {status}, not with {expected}")
        assert self.process is not None
        memories = [Path("/dev/shm")] if self.lab is None else self.lab.memories()
        if left := leftovers.find(self.mark, self.process.pid, memories if os.geteuid() == 0 else []):
            raise Wrong(f"left behind: {left}")
        memory_lost = self.lab is None and "agent" in self.hitter.done
        replay.check_refusals(self.notes)
        if "refuse" in self.hitter.done and not any(note["what"] == "refused" for note in self.notes):
            raise Wrong("a commit without memory was tried, and nothing came of it")
        if "driver" in self.hitter.done:
            replay.history_of(self.notes, memory_lost)
        else:
            outcome.history = replay.check(self.notes, self.plan.shape, memory_lost)
        self._judge_output()

    def _judge_output(self) -> None:
        text = self.output.read_text(errors="replace")
        if any(line.startswith("Traceback") for line in text.splitlines()):
            raise Wrong("a process that is no rank has raised an exception")
        if self.plan.snapshots == "small" and "no snapshot was written" not in text:
            raise Wrong("the disk was too small for a snapshot, and no word of that")

    def _recoveries(self) -> dict[str, list[float]]:
        """Returns, by kind, the seconds from each fault to the next generation's first commit."""
        found: dict[str, list[float]] = {}
        for kind, generation, moment in self.hitter.times:
            later = [
                note["t"]
                for note in self.notes
                if note["what"] == "sealed" and note["gen"] > generation and note["t"] > moment
            ]
            if later:
                found.setdefault(kind, []).append(later[0] - moment)
        return found
