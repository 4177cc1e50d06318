"""What a job is like and what happens to it, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Fault = dict[str, Any]

START = ("launch", "import", "init", "inited", "before", "restore", "taken")  # of a generation, before its first commit
FIRST = ("launch", "import", "init", "inited", "before", "copy", "vote")  # of the first one
TRAIN = ("step", "allreduce", "copy", "copied", "vote", "sealed", "epoch")
END = ("end", "exit")
HERE = ("kill", "kill", "kill", "kill_two", "kill_but_one", "stop", "raise", "exit")
PROCESSES = ("mpiexec", "stub", "zygote", "agent", "proxy")
DISCOVERY = ("slots", "slots", "blink", "discovery_fails", "discovery_hangs")
HOSTS = ("link", "flap", "partition", "crash", "kill", "stop", "agent", "refuse")
RAISES = ("import", "init", "inited", "before", "step", "allreduce", "epoch")  # where programs have lines of their own
LEAVES = ("step", "allreduce", "epoch")  # where a rank must not leave


@dataclass
class Plan:
    seed: int
    size: int = 3
    least: int = 2
    hosts: int = 0  # 0: this machine alone
    torch: bool = False
    shape: tuple[float, ...] = (3, 50, 2, 600, 0.004)  # epochs, samples, batch, weights, nap
    cooldown: bool = False  # slots that failed are used again soon
    discovery: bool = False
    snapshots: str = ""  # "": none, "small": on a disk that is too small for one
    faults: list[Fault] = field(default_factory=list)

    @property
    def driver_dies(self) -> bool:
        return any(fault["kind"] == "driver" for fault in self.faults)

    def has(self, kinds: Sequence[str], phases: Sequence[str]) -> bool:
        """A fault of one of these kinds in one of these phases; empty: any."""
        return any(
            (not kinds or fault["kind"] in kinds) and (not phases or fault["phase"] in phases) for fault in self.faults
        )

    def says(self) -> str:
        faults = ", ".join(f"{it['kind']} in {it['phase']} from step {it['step']}" for it in self.faults)
        flags = [name for name in ("torch", "cooldown", "discovery", "snapshots") if getattr(self, name)]
        return f"{self.size} ranks{' on hosts' * bool(self.hosts)} {' '.join(flags)}: {faults or 'no fault'}"


def draw(seed: int, hosts: int = 0) -> Plan:
    drawn = random.Random(seed)
    plan = Plan(seed, hosts=hosts, size=hosts or drawn.choice((2, 3, 3, 4)))
    plan.least = max(1, plan.size - drawn.choice((1, 1, 2)))
    plan.torch = drawn.random() < 0.15
    plan.cooldown = drawn.random() < 0.3
    plan.discovery = not hosts and drawn.random() < 0.3
    plan.snapshots = drawn.choice(("",) * 6 + ("small", "kept")) if not hosts else ""
    slow = hosts or plan.discovery or plan.snapshots
    plan.shape = (2, drawn.randint(30, 60), drawn.choice((1, 2)), 600, 0.04 if slow else 0.004)
    step, starts = -1, 0
    for _ in range(drawn.choice((1, 1, 2, 2, 3))):
        phase = drawn.choice(TRAIN if drawn.random() < 0.9 else END)
        if starts < 2 and drawn.random() < 0.3:  # three in a row without a commit end a job
            phase = drawn.choice(FIRST if step < 0 else START)
            starts += 1
        if phase in TRAIN:
            step = max(0, step) + drawn.randint(1, 10)
        elif phase in END:
            step = max(0, step)
        plan.faults.append(_fault(drawn, plan, phase, step))
    # All ranks take part in it, so whether it is its turn must be beyond doubt.
    plan.faults.sort(key=lambda fault: fault["kind"] != "refuse")
    return plan


def _what(drawn: random.Random, plan: Plan, phase: str, step: int) -> tuple[str, str, int]:
    """The kind of a fault; and where, which may be elsewhere for some."""
    kinds = list(HOSTS if plan.hosts else HERE + PROCESSES)
    if plan.discovery:
        kinds += DISCOVERY
    if phase in TRAIN and not plan.hosts:
        kinds += ["refuse", "driver"]
    kind = drawn.choice(kinds)
    if phase == "launch" and kind in ("raise", "exit", "stop", "kill_two", "kill_but_one"):
        kind = "kill"
    if (kind == "raise" and phase not in RAISES) or (kind == "exit" and phase not in LEAVES):
        phase = drawn.choice(LEAVES)
        step = max(0, step)
    if kind == "refuse":
        phase, step = "commit", max(0, step)
    return kind, phase, step


def _fault(drawn: random.Random, plan: Plan, phase: str, step: int) -> Fault:
    kind, phase, step = _what(drawn, plan, phase, step)
    late = drawn.random() < 0.5
    delay = drawn.uniform(0, 0.3 if phase == "launch" else 0.01) if late else 0.0
    if phase == "launch" and step < 0:
        delay = drawn.uniform(0, 2)  # from the job's start
    hold = 0.0 if kind in ("kill", "raise", "exit") else drawn.choice((0, 0.02, 0.2))
    # In phases that the first rank of a host has alone, or that come before ranks are known, it is whoever comes.
    rank = drawn.randrange(4) if phase in TRAIN[:2] + TRAIN[4:] + END else None
    return {
        "kind": kind,
        "phase": phase,
        "step": step,
        "rank": rank if kind != "refuse" else None,
        "delay": delay,
        "hold": hold,
        "draw": drawn.randrange(1 << 16),  # which process, host or number of slots
    }
