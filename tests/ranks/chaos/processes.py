"""A job's processes: found by an environment variable, classified by role, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

MARK = "CHAOS_JOB"

_MODULES = {  # ringcomm's modules that are run with `-IS start.py`
    "ringcomm._src.elastic.agent.host": "agent",
    "ringcomm._src.launch.stub": "stub",
    "ringcomm._src.elastic.agent.shim": "proxy",  # the process that represents it on this host
}
_PROXIES = ("hydra_pmi_proxy", "hydra_bstrap_proxy", "prted")
_LAUNCHERS = ("mpiexec", "mpiexec.hydra", "mpirun", "prterun", "prun")


def role_of(words: list[str]) -> str:
    names = [os.path.basename(word) for word in words[:2]]
    if any(name in _PROXIES for name in names):
        return "proxy"
    if any(name in _LAUNCHERS for name in names):
        return "mpiexec"
    if not names[0].startswith("python"):
        return "other"
    if any("ringcomm._src.elastic.agent.zygote" in word for word in words):
        return "zygote"
    if words[1:4] == ["-m", "ringcomm", "run"] or "ringrun" in names:
        return "driver"
    return _MODULES.get(words[3], "other") if len(words) > 3 else "other"


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    role: str  # trainer: forked by a zygote
    state: str
    line: str


def of_job(mark: str) -> list[Process]:
    """Returns all processes that carry the mark, except zombies."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, IndexError):
                if (process := _look(int(name), mark)) is not None:
                    found.append(process)
    zygotes = {process.pid for process in found if process.role == "zygote"}
    return [Process(it.pid, it.parent, "trainer", it.state, it.line) if it.parent in zygotes else it for it in found]


def _look(pid: int, mark: str) -> Process | None:
    with open(f"/proc/{pid}/environ", "rb") as file:
        if f"{MARK}={mark}".encode() not in file.read().split(b"\0"):
            return None
    with open(f"/proc/{pid}/stat") as file:
        state, parent = file.read().rpartition(")")[2].split()[:2]
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode(errors="replace").split("\0")
    return Process(pid, int(parent), role_of(words), state, " ".join(words)) if state != "Z" else None


def seen_here(mark: str, pid: int, space: int) -> int:
    """Converts a process id of another namespace to this one; 0 if there is no process."""
    for process in of_job(mark):
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/status") as file:
            ids = next(line.split() for line in file if line.startswith("NSpid:"))
            if int(ids[-1]) == pid and os.stat(f"/proc/{process.pid}/ns/pid").st_ino == space:
                return process.pid
    return 0


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Sends the signal. Returns whether the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_job(mark: str) -> None:
    """Kills until no process is left, because a killed process may just have started others."""
    for _ in range(50):
        left = of_job(mark)
        for process in left:
            kill(process.pid)
        if not left:
            return
