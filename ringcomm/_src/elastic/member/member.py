"""This process as a member of an elastic job: its connection to the host's agent, and the memory of the agent.

States and `run` use `member()` to find out whether they are in an elastic job.
"""

from __future__ import annotations

import functools
import os

from ringcomm._src.elastic.agent.keeper import UPDATED, Keeper
from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.agent.processes import loaded_modules
from ringcomm._src.elastic.agent.protocol import ADDRESS, GENERATION
from ringcomm._src.named import runtime


class Member:
    """The connection of a rank to its host's agent. Raises OSError if the agent cannot be reached."""

    def __init__(self, address: str, generation: int) -> None:
        self._peer = Peer.connect(address)
        self._peer.send({"trainer": True})
        message, fds = self._peer.receive()
        self.keeper = Keeper(fds)
        os.close(fds[0])  # a buffer keeps its descriptor, with which it can grow
        self.generation = generation
        self.host: str = message["host"]
        self.keeps: bool = message["membership"]["keeps"]  # True if this host stores commits

    @property
    def leads(self) -> bool:
        """True if this rank writes commits for its host."""
        return runtime.local_rank() == 0

    @property
    def updated(self) -> int:
        """Not 0 if ranks must commit and leave."""
        return self.keeper.words[UPDATED]

    def say(self, said: str) -> None:
        """Sends this rank's progress to the agent: a constant of ringcomm._src.elastic.agent.protocol."""
        self._peer.tell({"said": said})

    def tell_modules(self) -> None:
        """Sends the modules that the program has imported, so that the next ranks start with them loaded."""
        self._peer.tell({"modules": loaded_modules()})


@functools.cache
def member() -> Member | None:
    """Returns this process's member; None outside of elastic jobs, where no memory outlives the process."""
    address = os.environ.get(ADDRESS)
    return Member(address, int(os.environ[GENERATION])) if address else None
