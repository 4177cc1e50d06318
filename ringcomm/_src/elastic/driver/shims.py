"""What stands in for ssh while launchers start their helpers on other hosts: the hosts' agents do it."""

from __future__ import annotations

from typing import Any

from ringcomm._src.elastic.agent.peers import Peer
from ringcomm._src.elastic.driver.agents import Agents


class Shims:
    """Those that wait for a helper's end, by numbers of their own."""

    def __init__(self, agents: Agents) -> None:
        self._agents, self._all, self._number = agents, dict[int, Peer](), 0

    def ask(self, host: str, message: dict[str, Any]) -> None:
        self._number += 1
        self._all[self._number] = message["peer"]
        self._agents.tell(host, {"help": self._number, "command": message["command"], "cwd": message["cwd"]})

    def answer(self, _host: str, message: dict[str, Any]) -> None:
        """The helper of one that may be gone has ended."""
        if (shim := self._all.get(message["helper_ended"])) is not None:
            shim.tell({"status": message["status"]})

    def close(self) -> None:
        for shim in self._all.values():
            shim.close()
        self._all.clear()
