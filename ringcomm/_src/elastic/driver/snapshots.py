"""Requests snapshots: an agent writes the newest commit to a folder.

Snapshots are requested periodically, and when the job is interrupted. The driver calls `tick`
in its main loop.
"""

from __future__ import annotations

import time

from ringcomm._src.elastic.agent.peers import Message
from ringcomm._src.elastic.driver.agents import Agents
from ringcomm._src.launch.launcher_process import print_stderr


class Snapshots:
    """Snapshots to `folder` every `every` seconds; no snapshots if `folder` is None."""

    def __init__(self, agents: Agents, folder: str | None, every: float) -> None:
        self._agents, self.folder, self._every = agents, folder, every
        self.final_due = False  # the job waits for the last snapshot
        self._last_request = time.monotonic()
        self._reported: set[str] = set()  # reasons of failures that were shown

    def tick(self, now: float) -> None:
        if self.folder and now - self._last_request > self._every:
            self._last_request = now
            self._request()

    def request_final(self) -> None:
        self.final_due = True
        self._request()

    def _request(self) -> None:
        hosts = self._agents.reached
        if hosts and self.folder:
            self._agents.send(hosts[0], {"snapshot": self.folder})
        else:
            self.final_due = False

    def handle_reply(self, _host: str, message: Message) -> None:
        """Prints why a snapshot failed: each reason once, and again for the last snapshot."""
        reason = message.get("why")
        if reason and (self.final_due or reason not in self._reported):
            self._reported.add(reason)
            print_stderr(f"ringrun: no snapshot was written: {reason}")
        self.final_due = False
