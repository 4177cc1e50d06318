"""The properties of a job and its faults, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Fault = dict[str, Any]

# phases of a later generation, before its first commit
START = ("launch", "import", "init", "inited", "before", "restore", "taken")
FIRST = ("launch", "import", "init", "inited", "before", "copy", "vote")  # phases of the first generation
TRAIN = ("step", "allreduce", "copy", "copied", "vote", "sealed", "epoch")
END = ("end", "exit")
HERE = ("kill", "kill", "kill", "kill_two", "kill_but_one", "stop", "raise", "exit")
PROCESSES = ("mpiexec", "stub", "zygote", "agent", "proxy")
DISCOVERY = ("slots", "slots", "blink", "discovery_fails", "discovery_hangs")
HOSTS = ("link", "flap", "partition", "crash", "kill", "stop", "agent", "refuse")
# phases in which lines of the program run, which may raise
RAISES = ("import", "init", "inited", "before", "step", "allreduce", "epoch")
LEAVES = ("step", "allreduce", "epoch")  # phases in which a rank may exit early, which is an error


@dataclass
class Plan:
    seed: int
    size: int = 3
    least: int = 2
    hosts: int = 0  # 0: this machine only
    torch: bool = False
    shape: tuple[float, ...] = (3, 50, 2, 600, 0.004)  # epochs, samples, batch, weights, nap
    cooldown: bool = False  # failed slots are used again after a short time
    discovery: bool = False
    snapshots: str = ""  # "": none, "small": on a disk that has no room for one
    faults: list[Fault] = field(default_factory=list)

    @property
    def driver_dies(self) -> bool:
        return any(fault["kind"] == "driver" for fault in self.faults)

    def has(self, kinds: Sequence[str], phases: Sequence[str]) -> bool:
        """Returns True if the plan has a fault of these kinds in these phases; empty: any."""
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
        if starts < 2 and drawn.random() < 0.3:  # three starts in a row without a commit end a job
            phase = drawn.choice(FIRST if step < 0 else START)
            starts += 1
        if phase in TRAIN:
            step = max(0, step) + drawn.randint(1, 10)
        elif phase in END:
            step = max(0, step)
        plan.faults.append(_fault(drawn, plan, phase, step))
    # All ranks take part in a refused commit, so all must agree that it is the next fault.
    plan.faults.sort(key=lambda fault: fault["kind"] != "refuse")
    return plan


def _what(drawn: random.Random, plan: Plan, phase: str, step: int) -> tuple[str, str, int]:
    """Returns the kind, phase and step of a fault. Some kinds change the phase and the step."""
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
        delay = drawn.uniform(0, 2)  # seconds from the job's start
    hold = 0.0 if kind in ("kill", "raise", "exit") else drawn.choice((0, 0.02, 0.2))
    # Some phases are passed only by the first rank of a host, or before ranks have numbers. There
    # the first rank that arrives is the victim.
    rank = drawn.randrange(4) if phase in TRAIN[:2] + TRAIN[4:] + END else None
    return {
        "kind": kind,
        "phase": phase,
        "step": step,
        "rank": rank if kind != "refuse" else None,
        "delay": delay,
        "hold": hold,
        "draw": drawn.randrange(1 << 16),  # selects the process, the host or the number of slots
    }
