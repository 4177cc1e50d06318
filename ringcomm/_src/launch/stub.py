"""Represents a rank of an elastic job to the launcher; the host's agent runs the program.

The launcher sees only the end of the stub, and the stub ends when the driver of the job allows it.
So no launcher ends the other ranks before the driver knows the rank that failed first.
"""

from __future__ import annotations

import os
import select
from typing import Any

from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.agent.protocol import ADDRESS, GENERATION
from ringcomm._src.launch import rank

_DESCRIPTORS = ("PMI_FD",)  # variables with the descriptor of the connection to MPICH's launcher


class Program:
    """A rank's program that the agent runs, with the interface of subprocess.Popen."""

    def __init__(self, number: int, command: list[str], out: int, err: int) -> None:
        """Asks the agent to start the program. Raises OSError if there is no agent."""
        self.returncode: int | None = None
        self.may_end = False  # True once the stub may end
        self._peer = Peer.connect(os.environ[ADDRESS])
        descriptors = [name for name in _DESCRIPTORS if os.environ.get(name, "").isdigit()]
        request = {
            "stub": True,
            "rank": number,
            "generation": int(os.environ[GENERATION]),
            "command": command,
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "cores": sorted(os.sched_getaffinity(0)),
            "more": descriptors,
        }
        devnull_fd = os.open(os.devnull, os.O_RDONLY)
        self._peer.send(request, [devnull_fd, out, err, *(int(os.environ[name]) for name in descriptors)])
        os.close(devnull_fd)  # MPI's descriptors stay open: without them the launcher would see the rank end

    def fileno(self) -> int:
        return self._peer.fileno()

    def poll(self) -> int | None:
        while self.returncode is None or not self.may_end:
            if not select.select([self._peer], [], [], 0)[0]:
                break
            self._receive()
        return self.returncode

    def _receive(self) -> None:
        try:
            message, _ = self._peer.receive()
        except EOFError:
            message = {"ended": 1, "go": True}
        if self.returncode is None:
            self.returncode = message["ended"]
        self.may_end |= message["go"]

    def send_signal(self, number: int) -> None:
        self._peer.try_send({"signal": number})

    def wait_until_may_end(self) -> None:
        while not self.may_end:
            self._receive()


class Stub(rank.Rank):
    """A rank of an elastic job: the agent of the host runs its program."""

    mode = "ab"  # appends: this rank's output of earlier generations stays

    def start(self, out: int, err: int) -> Any:
        return Program(self.rank, self.command, out, err)

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def sources(self) -> list[Any]:
        return [self.child]

    def finish(self) -> None:
        if self.child is not None:
            self.child.wait_until_may_end()


def main() -> int:
    return rank.main(Stub)
