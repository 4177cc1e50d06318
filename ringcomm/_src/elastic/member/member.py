"""This process as a member of an elastic job: its connection to the agent, and the agent's memory.

States and `run` use `member()` to find out whether they are in an elastic job.
"""

from __future__ import annotations

import functools
import os

from ringcomm._src.elastic.agent.commit_store import UPDATED, CommitStore
from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.agent.processes import loaded_modules
from ringcomm._src.elastic.agent.protocol import ADDRESS, GENERATION
from ringcomm._src.named import runtime


class Member:
    """A rank's connection to its host's agent. Raises OSError if the agent is unreachable."""

    def __init__(self, address: str, generation: int) -> None:
        self._peer = Peer.connect(address)
        self._peer.send({"trainer": True})
        message, fds = self._peer.receive()
        self.commit_store = CommitStore(fds)
        os.close(fds[0])  # a buffer keeps its descriptor, with which it can grow
        self.generation = generation
        self.host: str = message["host"]
        self.stores_commits: bool = message["membership"]["stores_commits"]  # True if this host stores commits

    @property
    def leads(self) -> bool:
        """True if this rank writes commits for its host."""
        return runtime.local_rank() == 0

    @property
    def updated(self) -> int:
        """Not 0 if ranks must commit and leave."""
        return self.commit_store.words[UPDATED]

    def report(self, progress: str) -> None:
        """Sends this rank's progress to the agent: a constant of agent/protocol.py."""
        self._peer.try_send({"progress": progress})

    def send_modules(self) -> None:
        """Sends the names of the imported modules, so that the next zygote imports them too."""
        self._peer.try_send({"modules": loaded_modules()})


@functools.cache
def member() -> Member | None:
    """Returns this process's member; None outside of elastic jobs."""
    address = os.environ.get(ADDRESS)
    return Member(address, int(os.environ[GENERATION])) if address else None
