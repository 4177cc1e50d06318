"""Starts an MPI launcher's helpers: processes on this host that it would start by ssh.

The driver requests a helper when a launcher runs the shim (shim.py).
"""

from __future__ import annotations

import contextlib
import os
import subprocess

from ringcomm._src.elastic.agent.peers import Message
from ringcomm._src.elastic.agent.processes import as_shell, in_own_session, signal_group, stat_of


class Helpers:
    """The running helpers; the driver numbers them. `verbose`: show their output."""

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
            preexec_fn=in_own_session,
        )

    @property
    def pids(self) -> list[int]:
        return [helper.pid for helper in self._all.values()]

    def reap(self) -> list[Message]:
        """Returns the messages to the driver about helpers that have ended."""
        ended = {number: status for number, helper in self._all.items() if (status := helper.poll()) is not None}
        for number in ended:
            del self._all[number]
        return [{"helper_ended": number, "status": as_shell(status)} for number, status in ended.items()]

    def kill(self) -> None:
        for pid in self.pids:
            signal_group(pid)


def descendants(pid: int) -> list[int]:
    """Returns all descendants of a process."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents[int(name)] = int(stat_of(int(name))[1])
    found: list[int] = []
    unvisited = [pid]
    while unvisited:
        parent = unvisited.pop()
        children = [child for child, parent_of_child in parents.items() if parent_of_child == parent]
        found += children
        unvisited += children
    return found
