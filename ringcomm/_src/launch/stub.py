"""Represents a rank of an elastic job towards the launcher. The agent of the host runs the rank's program.

The launcher sees only the end of the stub, and the stub ends when the driver of the job allows it. So
no launcher ends the other ranks before the driver knows the rank that failed first.
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
        self.go = False  # True once the stub may end
        self._peer = Peer.connect(os.environ[ADDRESS])
        more = [name for name in _DESCRIPTORS if os.environ.get(name, "").isdigit()]
        asked = {
            "stub": True,
            "rank": number,
            "generation": int(os.environ[GENERATION]),
            "command": command,
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "cores": sorted(os.sched_getaffinity(0)),
            "more": more,
        }
        nothing = os.open(os.devnull, os.O_RDONLY)
        self._peer.send(asked, [nothing, out, err, *(int(os.environ[name]) for name in more)])
        os.close(nothing)  # MPI's stay open: the launcher would take their closing for the rank's end

    def fileno(self) -> int:
        return self._peer.fileno()

    def poll(self) -> int | None:
        while self.returncode is None or not self.go:
            if not select.select([self._peer], [], [], 0)[0]:
                break
            self._hear()
        return self.returncode

    def _hear(self) -> None:
        try:
            message, _ = self._peer.receive()
        except EOFError:
            message = {"ended": 1, "go": True}
        if self.returncode is None:
            self.returncode = message["ended"]
        self.go |= message["go"]

    def send_signal(self, number: int) -> None:
        self._peer.tell({"signal": number})

    def wait_to_go(self) -> None:
        while not self.go:
            self._hear()


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
            self.child.wait_to_go()


def main() -> int:
    return rank.main(Stub)
