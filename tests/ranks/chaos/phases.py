"""Notes in a rank every phase that it passes, and carries out the faults that are planned there.

A note is a line of JSON that a rank appends to a file shared by all ranks, so notes survive the
death of their rank.
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
    """The exception of a planned fault."""


def note(what: str, **more: Any) -> None:
    line = {"t": time.time(), "what": what, "pid": os.getpid(), "space": _SPACE, **here, **more}
    os.write(_log, json.dumps(line).encode() + b"\n")


def at(phase: str) -> None:
    """Notes the beginning of a phase. The first rank that reaches a planned fault is its victim."""
    note("phase", phase=phase)
    for number, fault in enumerate(_PLAN):
        if _fits(fault, phase) and not os.path.exists(_claim(number)) and _claimed(number):
            _suffer(fault, number)
            return


def _fits(fault: dict[str, Any], phase: str) -> bool:
    rank_fits = fault["rank"] is None or here["rank"] < 0 or here["rank"] == fault["rank"] % max(1, here["size"])
    return fault["phase"] == phase and fault["step"] <= _furthest() and rank_fits


def _furthest() -> int:
    """Returns the step of this job's newest commit, as rank 0 last counted it; -1 if there is none."""
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
    if fault["hold"]:  # the harness reads the note, and acts within this time
        time.sleep(fault["hold"])


def armed(kind: str) -> dict[str, Any] | None:
    """Returns the next fault of all ranks if it is of this kind and its step is reached; else None."""
    for number, fault in enumerate(_PLAN):
        if os.path.exists(_claim(number)):
            continue
        return {**fault, "number": number} if fault["kind"] == kind and fault["step"] <= here["step"] else None
    return None


def settle(number: int) -> None:
    """Marks a fault in which all ranks take part as finished."""
    _claimed(number)


def count_step() -> None:
    """Rank 0 sets the size of a file, in bytes, to the number of sealed steps."""
    with open(os.path.join(FOLDER, "steps"), "ab") as file:
        file.truncate(max(0, here["step"]))


def hook_commits() -> None:
    """Notes phases within commits and restores, by wrapping the functions that make them."""
    from ringcomm._src.elastic.agent.commit_store import Buffer
    from ringcomm._src.elastic.member.commits import HostCommits

    writing = False
    write, invalidate, seal, take = Buffer.write, Buffer.invalidate, HostCommits.seal, HostCommits.take

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

    def seal_and_note(self: Any, requested: bool) -> bool:
        at("vote")
        answer = seal(self, requested)
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

    Buffer.write, Buffer.invalidate, HostCommits.seal, HostCommits.take = (  # type: ignore[method-assign]
        write_and_note,
        invalidate_and_note,
        seal_and_note,
        take_and_note,
    )
