"""In a rank: notes every phase that it passes, and is the place of the faults that the harness has planned for them.

A line of JSON per note, appended to one file by all ranks: what a killed rank has noted is there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

FOLDER = os.environ["CHAOS_FOLDER"]
GENERATION = int(os.environ.get("RINGCOMM_ELASTIC_GENERATION", 0))
_PLAN: list[dict[str, Any]] = json.loads(os.environ.get("CHAOS_PLAN", "[]"))
_log = os.open(os.path.join(FOLDER, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_SPACE = os.stat("/proc/self/ns/pid").st_ino  # process ids repeat between hosts
here: dict[str, Any] = {"gen": GENERATION, "rank": -1, "size": 0, "step": -1}


class Planned(Exception):
    """What a rank raises because it was planned."""


def note(what: str, **more: Any) -> None:
    line = {"t": time.time(), "what": what, "pid": os.getpid(), "space": _SPACE, **here, **more}
    os.write(_log, json.dumps(line).encode() + b"\n")


def at(phase: str) -> None:
    """A phase begins. The first rank that comes where a fault is planned is its victim."""
    note("phase", phase=phase)
    for number, fault in enumerate(_PLAN):
        if _fits(fault, phase) and not os.path.exists(_claim(number)) and _claimed(number):
            _suffer(fault, number)
            return


def _fits(fault: dict[str, Any], phase: str) -> bool:
    rank_fits = fault["rank"] is None or here["rank"] < 0 or here["rank"] == fault["rank"] % max(1, here["size"])
    return fault["phase"] == phase and fault["step"] <= _furthest() and rank_fits


def _furthest() -> int:
    """The step of this job's newest commit but for its last moments: of this generation, or that it begins with."""
    try:
        return int(os.stat(os.path.join(FOLDER, "steps")).st_size)
    except OSError:
        return -1


def _claim(number: int) -> str:
    return os.path.join(FOLDER, f"claimed-{number}")


def _claimed(number: int) -> bool:
    try:
        os.close(os.open(_claim(number), os.O_CREAT | os.O_EXCL))
    except OSError:
        return False
    return True


def _suffer(fault: dict[str, Any], number: int) -> None:
    kind = fault["kind"]
    note("fault", number=number, kind=kind)
    if kind == "raise":
        raise Planned(f"fault {number}, in {fault['phase']}")
    if kind == "exit":
        sys.exit(0)
    if kind == "kill" and not fault["delay"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault["hold"]:  # the harness sees the note, and acts within this time
        time.sleep(fault["hold"])


def armed(kind: str) -> dict[str, Any] | None:
    """The next fault, if it is of a kind that all ranks take part in, and it is time."""
    for number, fault in enumerate(_PLAN):
        if os.path.exists(_claim(number)):
            continue
        return {**fault, "number": number} if fault["kind"] == kind and fault["step"] <= here["step"] else None
    return None


def settle(number: int) -> None:
    """A fault that all ranks take part in is over."""
    _claimed(number)


def count_step() -> None:
    """By rank 0, a byte per sealed commit."""
    with open(os.path.join(FOLDER, "steps"), "ab") as file:
        file.truncate(max(0, here["step"]))


def hook_commits() -> None:
    """Phases within commits and restores, by wrapping what makes them."""
    from ringcomm._src.elastic.agent.keeper import Buffer
    from ringcomm._src.elastic.member.commits import Kept

    writing = False
    write, invalidate, seal, take = Buffer.write, Buffer.invalidate, Kept.seal, Kept.take

    def write_and_note(self: Any, *arguments: Any) -> None:
        nonlocal writing
        writing = True
        try:
            write(self, *arguments)
        finally:
            writing = False
        at("copied")

    def invalidate_and_note(self: Any) -> None:
        invalidate(self)
        if writing:
            at("copy")

    def seal_and_note(self: Any, asked: bool) -> bool:
        at("vote")
        answer = seal(self, asked)
        note("sealed", leaves=answer)
        if here["rank"] == 0:
            count_step()
        at("sealed")
        return answer

    def take_and_note(self: Any, chosen: Any) -> Any:
        at("restore")
        taken = take(self, chosen)
        at("taken")
        return taken

    Buffer.write, Buffer.invalidate, Kept.seal, Kept.take = (  # type: ignore[method-assign]
        write_and_note,
        invalidate_and_note,
        seal_and_note,
        take_and_note,
    )
