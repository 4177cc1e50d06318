"""Commits in a folder: one of the agents writes them, now and then, and when the job is interrupted."""

from __future__ import annotations

import time

from ringcomm._src.elastic.agent.peers import Message
from ringcomm._src.elastic.driver.agents import Agents
from ringcomm._src.launch.launched import say


class Snapshots:
    """To `folder`, every so many seconds; None: nowhere."""

    def __init__(self, agents: Agents, folder: str | None, every: float) -> None:
        self._agents, self.folder, self._every = agents, folder, every
        self.final_due = False  # the last one, which the job waits for
        self._asked = time.monotonic()
        self._said: set[str] = set()  # why some were not written

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
        """The same reason is told once; and of the last one, after which nothing more is written."""
        why = message.get("why")
        if why and (self.final_due or why not in self._said):
            self._said.add(why)
            say(f"ringrun: no snapshot was written: {why}")
        self.final_due = False
