"""Requests snapshots: an agent writes the newest commit to a folder, periodically and when the job is interrupted.

The driver calls `tick` in its main loop.
"""

from __future__ import annotations

import time

from ringcomm._src.elastic.agent.peers import Message
from ringcomm._src.elastic.driver.agents import Agents
from ringcomm._src.launch.launched import say


class Snapshots:
    """Snapshots to `folder` every `every` seconds; no snapshots if `folder` is None."""

    def __init__(self, agents: Agents, folder: str | None, every: float) -> None:
        self._agents, self.folder, self._every = agents, folder, every
        self.final_due = False  # the job waits for the last snapshot
        self._asked = time.monotonic()
        self._said: set[str] = set()  # reasons of failures that were shown

    def tick(self, now: float) -> None:
        if self.folder and now - self._asked > self._every:
            self._asked = now
            self._ask()

    def request_final(self) -> None:
        self.final_due = True
        self._ask()

    def _ask(self) -> None:
        hosts = self._agents.reached
        if hosts and self.folder:
            self._agents.tell(hosts[0], {"snapshot": self.folder})
        else:
            self.final_due = False

    def answered(self, _host: str, message: Message) -> None:
        """Shows why a snapshot failed. Each reason is shown once, and again for the last snapshot."""
        why = message.get("why")
        if why and (self.final_due or why not in self._said):
            self._said.add(why)
            say(f"ringrun: no snapshot was written: {why}")
        self.final_due = False
