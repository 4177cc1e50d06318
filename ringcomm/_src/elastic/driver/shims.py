"""Handles requests of the shims that replace ssh: the hosts' agents start the launcher's helpers.

The driver forwards messages between shims and agents.
"""

from __future__ import annotations

from typing import Any

from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.driver.agents import Agents


class Shims:
    """The shims that wait until their helpers end. Each has a number, the key of `_all`."""

    def __init__(self, agents: Agents) -> None:
        self._agents, self._all, self._number = agents, dict[int, Peer](), 0

    def start_helper(self, host: str, message: dict[str, Any]) -> None:
        self._number += 1
        self._all[self._number] = message["peer"]
        self._agents.send(host, {"help": self._number, "command": message["command"], "cwd": message["cwd"]})

    def report_status(self, _host: str, message: dict[str, Any]) -> None:
        """After a helper has ended, sends its exit status to its shim, if this still exists."""
        if (shim := self._all.get(message["helper_ended"])) is not None:
            shim.try_send({"status": message["status"]})

    def close(self) -> None:
        for shim in self._all.values():
            shim.close()
        self._all.clear()
