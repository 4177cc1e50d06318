"""What an MPI's launcher has started on this host through the agent, as ssh would: its proxies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from ringcomm.agent.peers import Message, die_with_parent


class Helpers:
    """By the driver's numbers. `verbose`: what they write is shown."""

    def __init__(self, verbose: bool) -> None:
        self._all: dict[int, subprocess.Popen[bytes]] = {}
        self._output = None if verbose else subprocess.DEVNULL

    def start(self, message: Message) -> None:
        self._all[message["help"]] = subprocess.Popen(
            ["/bin/sh", "-c", message["command"]],
            cwd=message["cwd"] if os.path.isdir(message["cwd"]) else "/",
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            preexec_fn=_in_child,
        )

    @property
    def pids(self) -> list[int]:
        return [helper.pid for helper in self._all.values()]

    def reap(self) -> list[Message]:
        """What the driver is to be told of those that have ended."""
        ended = {number: status for number, helper in self._all.items() if (status := helper.poll()) is not None}
        for number in ended:
            del self._all[number]
        return [
            {"helper_ended": number, "status": status if status >= 0 else 128 - status}
            for number, status in ended.items()
        ]

    def kill(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _in_child() -> None:
    die_with_parent()
    os.setsid()


def descendants(pid: int) -> list[int]:
    """Processes that come of this one."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    found: list[int] = []
    left = [pid]
    while left:
        parent = left.pop()
        children = [child for child, its in parents.items() if its == parent]
        found += children
        left += children
    return found
