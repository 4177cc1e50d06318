"""Handles requests of the shims that replace ssh: the hosts' agents start the launcher's helpers.

The driver forwards messages between shims and agents.
"""

from __future__ import annotations

from typing import Any

from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.driver.agents import Agents


class Shims:
    """The shims that wait for the end of their helper, by a number."""

    def __init__(self, agents: Agents) -> None:
        self._agents, self._all, self._number = agents, dict[int, Peer](), 0

    def ask(self, host: str, message: dict[str, Any]) -> None:
        self._number += 1
        self._all[self._number] = message["peer"]
        self._agents.tell(host, {"help": self._number, "command": message["command"], "cwd": message["cwd"]})

    def answer(self, _host: str, message: dict[str, Any]) -> None:
        """Sends the status of a helper that has ended to its shim, which may be gone."""
        if (shim := self._all.get(message["helper_ended"])) is not None:
            shim.tell({"status": message["status"]})

    def close(self) -> None:
        for shim in self._all.values():
            shim.close()
        self._all.clear()
