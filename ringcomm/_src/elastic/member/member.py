"""This process's place in an elastic job: its host's agent, and the memory that the agent keeps."""

from __future__ import annotations

import functools
import os

from ringcomm._src.elastic.agent.keeper import UPDATED, Keeper
from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.agent.processes import loaded_modules
from ringcomm._src.elastic.agent.protocol import ADDRESS, GENERATION
from ringcomm._src.named import runtime


class Member:
    """Raises OSError if the agent cannot be reached."""

    def __init__(self, address: str, generation: int) -> None:
        self._peer = Peer.connect(address)
        self._peer.send({"trainer": True})
        message, fds = self._peer.receive()
        self.keeper = Keeper(fds)
        os.close(fds[0])  # buffers keep theirs, to make them longer
        self.generation = generation
        self.host: str = message["host"]
        self.keeps: bool = message["membership"]["keeps"]  # whether this host keeps commits

    @property
    def leads(self) -> bool:
        """Whether this rank writes for its host."""
        return runtime.local_rank() == 0

    @property
    def updated(self) -> int:
        """Not 0 if ranks are to commit and leave."""
        return self.keeper.words[UPDATED]

    def say(self, said: str) -> None:
        """A word of ringcomm._src.elastic.agent.protocol, of how far this rank is."""
        self._peer.tell({"said": said})

    def tell_modules(self) -> None:
        """What the program has imported by now, so that the next ranks start with it."""
        self._peer.tell({"modules": loaded_modules()})


@functools.cache
def member() -> Member | None:
    """None outside of elastic jobs: then nothing outlives this process."""
    address = os.environ.get(ADDRESS)
    return Member(address, int(os.environ[GENERATION])) if address else None
