"""The driver's connections to its agents: starts them, receives their messages, and detects silent ones.

`Driver` reads the events, and calls `want` and `tick` in its main loop.
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

from ringcomm._src.elastic.agent.beats import Beats
from ringcomm._src.elastic.agent.control import Control
from ringcomm._src.elastic.agent.host import BEATS
from ringcomm._src.elastic.agent.peers import Message, Peer, listen
from ringcomm._src.elastic.agent.processes import in_own_session
from ringcomm._src.elastic.agent.segments import remove_orphans
from ringcomm._src.elastic.agent.start import bare_command
from ringcomm._src.launch.launched import say, wait_or_kill

_AGAIN = 5.0  # minimum of the seconds between the first two attempts to start an agent; doubles with each attempt
_ATTEMPTS = 8  # failed attempts after which the driver abandons a host: 10 minutes
_SOON = 0.3  # seconds before the first attempt, after the agent was lost
_HANGS = 30.0  # seconds after which the driver abandons an attempt
_LOCAL_LIMIT = 10.0  # minimum limit of silence on this host, in seconds: shorter silence is load


@dataclass
class Known:
    """The state of an agent, from the first attempt to start it."""

    host: str
    process: subprocess.Popen[bytes] | None = None  # runs the agent, or ssh
    control: Control | None = None
    heard: float = 0.0
    address: Any = None  # source address of its heartbeats
    tried: float = float("-inf")
    attempts: int = 0  # attempts since it was connected, or was not wanted
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
        given: dict[str, Any],
        shell: Callable[[str], list[str]],
        alias: Callable[[str], str],
        is_local: Callable[[str], bool],
        only_local: bool,
    ) -> None:
        """`given`: arguments for every agent. `shell`: the words before a command that run it on a host.

        `alias`: maps all names of a machine to the name that its agent has.
        """
        self.events, self._shell, self.alias, self.is_local = events, shell, alias, is_local
        self._key = secrets.token_bytes(32)
        self._limit = float(given["limit"])
        self._given = {**given, "key": self._key.hex()}
        self._known: dict[str, Known] = {}
        self._began = self._beaten = self._ticked = time.monotonic()
        self._lock = threading.Lock()
        self._tcp = socket.create_server(("127.0.0.1" if only_local else "", 0), backlog=128)
        self.job: str = given["job"]
        self._beats = Beats(self._key, self._tcp.getsockname()[1])
        self._shims = listen(f"{self.job}-driver")
        for act, listener in ((self._welcome, self._tcp), (self._hear_shim, self._shims)):
            threading.Thread(target=self._accept, args=[listener, act], daemon=True).start()

    def _accept(self, listener: socket.socket, act: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the listener is closed
                return
            threading.Thread(target=act, args=[connection], daemon=True).start()

    def _welcome(self, connection: socket.socket) -> None:
        """Handles the connection of an agent, new or again, and receives its messages until it breaks."""
        try:
            control = Control(connection, self._key, driver=True)
            host = control.receive()["host"]
        except (OSError, EOFError, AuthenticationError, KeyError, ValueError):
            connection.close()
            return
        known = self._known.setdefault(host, Known(host))
        if (before := known.control) is not None:
            self._drop(known, before, "its agent had lost this process, and ended its ranks")
        with self._lock:
            known.control, known.heard, known.attempts = control, time.monotonic(), 0
        self.events.put(("reached", host))
        with contextlib.suppress(EOFError):
            while True:
                message = control.receive()
                known.heard = time.monotonic()
                if "beat" not in message:
                    self.events.put((next(iter(message)), host, message))
        self._drop(known, control, "the connection to its agent broke")
        control.close()

    def _drop(self, known: Known, control: Control, why: str) -> None:
        with self._lock:
            if known.control is not control:
                return
            known.control = known.address = None
            known.tried = time.monotonic() - _AGAIN + _SOON
        control.hang_up()
        self._give_up_shell(known)
        self.events.put(("silent", known.host, why))

    def _hear_shim(self, connection: socket.socket) -> None:
        peer = Peer(connection)
        with contextlib.suppress(EOFError):
            if peer.of_this_user():
                message, _ = peer.receive()
                self.events.put(("shim", message["host"], {**message, "peer": peer}))

    @staticmethod
    def _give_up_shell(known: Known) -> None:
        """Kills the process that started a remote agent. It may hang for hours, and the agent runs without it."""
        if not known.local and known.process is not None:
            with contextlib.suppress(OSError):
                known.process.kill()

    # ---- starting ----------------------------------------------------------------------------------------------------
    def want(self, hosts: Sequence[str]) -> None:
        """Starts the missing agents of these hosts.

        Failed attempts are repeated at increasing intervals, up to a maximum number. If a host was
        not wanted in between, the count starts again.
        """
        now = time.monotonic()
        for host in self._known.keys() - set(hosts):
            self._known[host].attempts = 0
        for host in hosts:
            known = self._known.setdefault(host, Known(host))
            if known.starting and now - known.tried > _HANGS:
                self._give_up_shell(known)
            if known.control is not None or known.starting or known.attempts > _ATTEMPTS:
                continue
            if now - known.tried > _AGAIN * 2 ** max(0, known.attempts - 1):
                known.tried, known.attempts = now, known.attempts + 1
                if known.attempts > _ATTEMPTS:
                    say(f"ringrun: host {host}: {_ATTEMPTS} attempts to start its agent have failed; no more are made")
                else:
                    self._start(known)

    def _start(self, known: Known) -> None:
        local = known.local = self.is_local(known.host)
        known.limit = max(self._limit, _LOCAL_LIMIT) if local else self._limit
        given = {**self._given, "host": known.host, "local": local, "limit": known.limit}
        given["addresses"], given["age"] = self._addresses(known.host, local), self._age()
        words = [*([] if local else self._shell(known.host)), *bare_command("ringcomm._src.elastic.agent.host")]
        try:
            known.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, preexec_fn=in_own_session if local else os.setsid
            )
            assert known.process.stdin
            with known.process.stdin as stream:
                stream.write(json.dumps(given).encode() + b"\n")
        except OSError as error:
            self.events.put(("silent", known.host, f"its agent cannot be started: {error}"))

    def _age(self) -> float:
        """Returns an upper bound of the time since the job began, in seconds, when an agent that starts now runs."""
        return time.monotonic() - self._began + _HANGS

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
        return any(known.starting for known in self._known.values())

    # ---- sending and receiving ---------------------------------------------------------------------------------------
    @property
    def reached(self) -> list[str]:
        return [host for host, known in self._known.items() if known.control is not None]

    def tell(self, host: str, message: Message) -> None:
        known = self._known.get(host)
        control = known.control if known else None
        if control is not None:
            try:
                control.send(message)
            except OSError:
                self._drop(known, control, "the connection to its agent broke")  # type: ignore[arg-type]

    def tell_all(self, message: Message) -> list[str]:
        """Sends a message to all connected agents. Returns their hosts."""
        hosts = self.reached
        for host in hosts:
            self.tell(host, message)
        return hosts

    def tick(self) -> None:
        """Receives and sends heartbeats, and drops silent agents. Call it several times within the limit of silence."""
        now = time.monotonic()
        while (beat := self._beats.receive()) is not None:
            if (known := self._known.get(beat[0])) is not None and known.control is not None:
                known.heard, known.address = now, beat[1]
        late = now - self._ticked > self._limit / BEATS  # this process has not run, so silence means nothing
        self._ticked = now
        for known in list(self._known.values()):
            control = known.control
            if control is None:
                continue
            if late:
                known.heard = now
            elif now - known.heard > known.limit:
                self._drop(known, control, f"nothing was heard of it for {known.limit:g} s")
        if now - self._beaten > self._limit / BEATS:
            self._beaten = now
            for known in self._known.values():
                if known.address is not None:
                    self._beats.send("driver", known.address)
            self.tell_all({"beat": True})

    def end(self) -> None:
        self.tell_all({"bye": True})
        self._tcp.close()
        self._shims.close()
        self._beats.close()
        deadline = time.monotonic() + 5
        for known in self._known.values():
            if known.process is not None:
                wait_or_kill(known.process, max(0.0, deadline - time.monotonic()))
        if any(known.local for known in self._known.values()):  # the last agent may have been killed
            remove_orphans(time.time() - self._age())
