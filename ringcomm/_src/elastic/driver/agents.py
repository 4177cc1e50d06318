"""The driver's connections to its agents: starts agents, and detects silent ones.

`Driver` reads the events, and calls `start_missing` and `tick` in its main loop.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from typing import Any

from ringcomm._src.elastic.agent.control import Control
from ringcomm._src.elastic.agent.heartbeats import Heartbeats
from ringcomm._src.elastic.agent.host import HEARTBEATS
from ringcomm._src.elastic.agent.peers import Message, Peer, listen
from ringcomm._src.elastic.agent.processes import in_own_session
from ringcomm._src.elastic.agent.segments import remove_orphans
from ringcomm._src.elastic.agent.start import bare_command
from ringcomm._src.launch.launcher_process import print_stderr, wait_or_kill

_RETRY_SECONDS = 5.0  # minimum seconds between the first two attempts to start an agent; doubled for each later one
_ATTEMPTS = 8  # failed attempts, in about 10 minutes, after which the driver abandons a host
_FIRST_RETRY_SECONDS = 0.3  # seconds from the loss of an agent to the first attempt to start another one
_ATTEMPT_SECONDS = 30.0  # seconds after which the driver abandons an attempt
_LOCAL_LIMIT = 10.0  # minimum limit of silence on this host, in seconds; high load may cause shorter silences


@dataclass
class AgentState:
    """The state of an agent, from the first attempt to start it."""

    host: str
    process: subprocess.Popen[bytes] | None = None  # runs the agent, or ssh
    control: Control | None = None
    last_received: float = 0.0
    address: Any = None  # source address of its heartbeats
    last_attempt: float = float("-inf")
    attempts: int = 0  # attempts since the agent was connected, or its host was not used
    local: bool = False
    limit: float = 0.0  # limit of silence, in seconds

    @property
    def starting(self) -> bool:
        return self.control is None and self.process is not None and self.process.poll() is None


class Agents:
    """The agents of all hosts.

    Events are put into `events`: ("reached", host), ("silent", host, why), (name, host, message).
    """

    def __init__(
        self,
        events: queue.SimpleQueue[tuple[Any, ...]],
        arguments: dict[str, Any],
        shell: Callable[[str], list[str]],
        alias: Callable[[str], str],
        is_local: Callable[[str], bool],
        only_local: bool,
    ) -> None:
        """Listens for agents.

        `arguments`: sent to every agent. `shell`: returns the words that run a command on a host.
        `alias`: maps all names of a machine to the name that its agent has.
        """
        self.events, self._shell, self.alias, self.is_local = events, shell, alias, is_local
        self._key = secrets.token_bytes(32)
        self._limit = float(arguments["limit"])
        self._arguments = {**arguments, "key": self._key.hex()}
        self._agents: dict[str, AgentState] = {}
        self._start_time = self._last_heartbeat = self._last_tick = time.monotonic()
        self._lock = threading.Lock()
        self._tcp = socket.create_server(("127.0.0.1" if only_local else "", 0), backlog=128)
        self.job: str = arguments["job"]
        self._heartbeats = Heartbeats(self._key, self._tcp.getsockname()[1])
        self._shims = listen(f"{self.job}-driver")
        for handler, listener in ((self._serve_agent, self._tcp), (self._receive_shim, self._shims)):
            threading.Thread(target=self._accept, args=[listener, handler], daemon=True).start()

    def _accept(self, listener: socket.socket, handler: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the listener is closed
                return
            threading.Thread(target=handler, args=[connection], daemon=True).start()

    def _serve_agent(self, connection: socket.socket) -> None:
        """Receives an agent's messages until the connection breaks. Agents may connect again."""
        try:
            control = Control(connection, self._key, driver=True)
            host = control.receive()["host"]
        except (OSError, EOFError, AuthenticationError, KeyError, ValueError):
            connection.close()
            return
        agent = self._agents.setdefault(host, AgentState(host))
        if (previous := agent.control) is not None:
            self._drop(agent, previous, "its agent lost the connection to ringrun, and ended its ranks")
        with self._lock:
            agent.control, agent.last_received, agent.attempts = control, time.monotonic(), 0
        self.events.put(("reached", host))
        with contextlib.suppress(EOFError):
            while True:
                message = control.receive()
                agent.last_received = time.monotonic()
                if "beat" not in message:
                    self.events.put((next(iter(message)), host, message))
        self._drop(agent, control, "the connection to its agent broke")
        control.close()

    def _drop(self, agent: AgentState, control: Control, reason: str) -> None:
        with self._lock:
            if agent.control is not control:
                return
            agent.control = agent.address = None
            agent.last_attempt = time.monotonic() - _RETRY_SECONDS + _FIRST_RETRY_SECONDS
        control.hang_up()
        self._kill_shell(agent)
        self.events.put(("silent", agent.host, reason))

    def _receive_shim(self, connection: socket.socket) -> None:
        peer = Peer(connection)
        with contextlib.suppress(EOFError):
            if peer.of_this_user():
                message, _ = peer.receive()
                self.events.put(("shim", message["host"], {**message, "peer": peer}))

    @staticmethod
    def _kill_shell(agent: AgentState) -> None:
        """Kills the process that started a remote agent: it may hang, and the agent outlives it."""
        if not agent.local and agent.process is not None:
            with contextlib.suppress(OSError):
                agent.process.kill()

    # ---- starting ----------------------------------------------------------------------------------------------------
    def start_missing(self, hosts: Sequence[str]) -> None:
        """Starts the missing agents of these hosts.

        Failed attempts are repeated at increasing intervals, up to a maximum number. The count of
        a host starts again after a call without this host.
        """
        now = time.monotonic()
        for host in self._agents.keys() - set(hosts):
            self._agents[host].attempts = 0
        for host in hosts:
            agent = self._agents.setdefault(host, AgentState(host))
            if agent.starting and now - agent.last_attempt > _ATTEMPT_SECONDS:
                self._kill_shell(agent)
            if agent.control is not None or agent.starting or agent.attempts > _ATTEMPTS:
                continue
            if now - agent.last_attempt > _RETRY_SECONDS * 2 ** max(0, agent.attempts - 1):
                agent.last_attempt, agent.attempts = now, agent.attempts + 1
                if agent.attempts > _ATTEMPTS:
                    print_stderr(
                        f"ringrun: host {host} is not used: {_ATTEMPTS} attempts to start its agent have failed"
                    )
                else:
                    self._start(agent)

    def _start(self, agent: AgentState) -> None:
        local = agent.local = self.is_local(agent.host)
        agent.limit = max(self._limit, _LOCAL_LIMIT) if local else self._limit
        arguments = {**self._arguments, "host": agent.host, "local": local, "limit": agent.limit}
        arguments["addresses"], arguments["age"] = self._addresses(agent.host, local), self._age()
        words = [*([] if local else self._shell(agent.host)), *bare_command("ringcomm._src.elastic.agent.host")]
        try:
            agent.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, preexec_fn=in_own_session if local else os.setsid
            )
            assert agent.process.stdin
            with agent.process.stdin as stream:
                stream.write(json.dumps(arguments).encode() + b"\n")
        except OSError as error:
            self.events.put(("silent", agent.host, f"its agent cannot be started: {error}"))

    def _age(self) -> float:
        """Returns an upper bound of the job's age in seconds when an agent that starts now runs."""
        return time.monotonic() - self._start_time + _ATTEMPT_SECONDS

    def _addresses(self, host: str, local: bool) -> list[tuple[str, int]]:
        port = self._tcp.getsockname()[1]
        if local:
            return [("127.0.0.1", port)]
        names = []
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing; gives the local address that this host would see
            names.append(probe.getsockname()[0])
        return [(name, port) for name in dict.fromkeys([*names, socket.getfqdn(), socket.gethostname()])]

    def starting(self) -> bool:
        return any(agent.starting for agent in self._agents.values())

    # ---- sending and receiving ---------------------------------------------------------------------------------------
    @property
    def reached(self) -> list[str]:
        return [host for host, agent in self._agents.items() if agent.control is not None]

    def send(self, host: str, message: Message) -> None:
        agent = self._agents.get(host)
        control = agent.control if agent else None
        if control is not None:
            try:
                control.send(message)
            except OSError:
                self._drop(agent, control, "the connection to its agent broke")  # type: ignore[arg-type]

    def send_all(self, message: Message) -> list[str]:
        """Sends a message to all connected agents. Returns their hosts."""
        hosts = self.reached
        for host in hosts:
            self.send(host, message)
        return hosts

    def tick(self) -> None:
        """Receives and sends heartbeats, and drops silent agents.

        The driver calls it several times within the limit of silence.
        """
        now = time.monotonic()
        while (beat := self._heartbeats.receive()) is not None:
            if (agent := self._agents.get(beat[0])) is not None and agent.control is not None:
                agent.last_received, agent.address = now, beat[1]
        late = now - self._last_tick > self._limit / HEARTBEATS  # this process has not run, so silence means nothing
        self._last_tick = now
        for agent in list(self._agents.values()):
            control = agent.control
            if control is None:
                continue
            if late:
                agent.last_received = now
            elif now - agent.last_received > agent.limit:
                self._drop(agent, control, f"its agent has sent nothing for {agent.limit:g} s (--heartbeat-seconds)")
        if now - self._last_heartbeat > self._limit / HEARTBEATS:
            self._last_heartbeat = now
            for agent in self._agents.values():
                if agent.address is not None:
                    self._heartbeats.send("driver", agent.address)
            self.send_all({"beat": True})

    def end(self) -> None:
        self.send_all({"bye": True})
        self._tcp.close()
        self._shims.close()
        self._heartbeats.close()
        deadline = time.monotonic() + 5
        for agent in self._agents.values():
            if agent.process is not None:
                wait_or_kill(agent.process, max(0.0, deadline - time.monotonic()))
        if any(agent.local for agent in self._agents.values()):  # a killed agent may have left files
            remove_orphans(time.time() - self._age())
