"""The agent of a host: stores commits, starts and ends ranks, and reports events to the driver.

One thread waits for all events: messages, ends of processes, and timeouts. Messages arrive from the
driver; from stubs, which the launcher starts (launch/stub.py); from trainers, which are the ranks;
and from zygotes, which fork trainers.

If driver and agent receive nothing from each other for a while, each treats the other as lost. The
agent then ends its ranks, so that the ranks of an isolated host do no harm, and keeps trying to
reconnect to the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ringcomm._src.elastic.agent import commit_store, snapshots
from ringcomm._src.elastic.agent.control import Control
from ringcomm._src.elastic.agent.heartbeats import Heartbeats
from ringcomm._src.elastic.agent.helpers import Helpers, descendants
from ringcomm._src.elastic.agent.peers import Message, Peer, listen
from ringcomm._src.elastic.agent.processes import adopt_orphans, die_with_parent, wake_at_signals
from ringcomm._src.elastic.agent.segments import remove_orphans
from ringcomm._src.elastic.agent.trainers import Trainer, Trainers
from ringcomm._src.elastic.agent.zygotes import Zygotes

HEARTBEATS = 10  # heartbeats per limit of silence
LEASE = 0.9  # fraction of the limit of silence after which an agent abandons the driver; the driver waits longer
_CONNECT = 1.0  # seconds for one attempt to connect
_ALL_GENERATIONS = sys.maxsize  # a generation number that includes all generations
_CHECK_SECONDS = 0.5  # seconds between two checks for stopped ranks
_KILL_SECONDS = 2.0  # seconds to wait for killed processes


class Agent:
    """The agent of a host.

    Fields of `arguments`: job, host, key, addresses of the driver; limit and patience (seconds of
    silence until ranks are ended, and until the agent ends too); age (upper bound of the seconds
    since the job began); zygote (True if one may be used); snapshot (a folder); verbose.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments, self._limit = arguments, float(arguments["limit"])
        self._job_began = time.time() - float(arguments["age"])
        self._selector = selectors.DefaultSelector()
        self._zygotes = Zygotes(self._selector, arguments["zygote"])
        self._trainers = self._zygotes.trainers = Trainers(self._ended, self._zygotes)
        self._fds = commit_store.allocate()
        self._commits = commit_store.CommitStore(self._fds)
        self._helpers = Helpers(arguments["verbose"])
        self._ending: set[int] = set()  # generations for which the driver awaits a "clear" message
        self._membership: Message = {
            "generation": 0,
            "stores_commits": True,
        }  # the last membership that the driver sent
        self._control: Control | None = None
        self._heartbeats = Heartbeats(bytes.fromhex(arguments["key"]))
        self._lost_since = self._last_received = self._last_check = self._last_heartbeat = time.monotonic()
        self._done = False
        self._lock = threading.Lock()  # guards the connection to the driver: snapshot threads use it too
        self._handlers: dict[str, Callable[[Message], None]] = {
            "begin": self._begin,
            "update": self._update,
            "end": self._end_generation,
            "help": self._helpers.start,
            "snapshot": self._snapshot,
            "bye": self.leave,
        }
        if arguments.get("snapshot"):
            try:
                snapshots.load(arguments["snapshot"], self._commits)
            except OSError as error:  # continuing would overwrite the snapshot
                raise SystemExit(f"ringrun: the snapshot cannot be read: {error}") from None

    def run(self) -> None:
        adopt_orphans()
        try:
            listener = listen(self._arguments["job"])
        except OSError:  # an agent of this job runs already; the driver could not reach it for a while
            return
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        self._selector.register(self._heartbeats, selectors.EVENT_READ, self._receive_heartbeat)
        wakeup, _ = wake_at_signals()
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._reap(wakeup))
        try:
            self._connect()
            while not self._done:
                for key, _ in self._selector.select(self._limit / HEARTBEATS / 4):
                    key.data()
                self._tick()
        finally:
            self._end_all()

    def leave(self, *_signal: Any) -> None:
        """Requests the end of the main loop.

        It is also a signal handler. An exception raised here would be lost if a destructor runs.
        """
        self._done = True

    def _reap(self, wakeup: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 1 << 10)
        self._trainers.reap_cold()
        for message in self._helpers.reap():
            self._send(message)
        with contextlib.suppress(ChildProcessError):  # reaps adopted orphans
            managed = {*self._zygotes.pids, *(trainer.pid for trainer in self._trainers.living()), *self._helpers.pids}
            while (
                found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            ) and found.si_pid not in managed:
                os.waitpid(found.si_pid, 0)

    # ---- the driver --------------------------------------------------------------------------------------------------
    def _connect(self) -> bool:
        """Tries every address once. If one refuses, the driver and the job have ended."""
        refused = 0
        for host, port in self._arguments["addresses"]:
            try:
                connection = socket.create_connection((host, port), _CONNECT)
                control = Control(connection, bytes.fromhex(self._arguments["key"]), driver=False)
                control.send({"host": self._arguments["host"], "pid": os.getpid(), "name": socket.gethostname()})
            except ConnectionRefusedError:
                refused += 1
                continue
            except (OSError, EOFError):
                continue
            self._control = control
            self._selector.register(control, selectors.EVENT_READ, self._receive_order)
            self._last_received = time.monotonic()
            return True
        self._done |= refused > 0
        return False

    def _receive_heartbeat(self) -> None:
        if self._heartbeats.receive() is not None:
            self._last_received = time.monotonic()

    def _send(self, message: Message) -> None:
        with self._lock:
            if self._control is not None:
                with contextlib.suppress(OSError):
                    self._control.send(message)

    def _receive_order(self) -> None:
        assert self._control is not None
        try:
            message = self._control.receive()
        except EOFError:
            self._lose_driver()
            return
        self._last_received = time.monotonic()
        for order, handler in self._handlers.items():
            if order in message:
                handler(message)

    def _lose_driver(self) -> None:
        """Ends all ranks of this host, since the driver is gone or cannot be reached."""
        with self._lock:
            if self._control is not None:
                self._selector.unregister(self._control)
                self._control.close()
                self._control = None
        self._lost_since = time.monotonic()
        self._ending.clear()
        self._kill(self._membership["generation"])
        if not self._done:
            self._connect()

    def _tick(self) -> None:
        now = time.monotonic()
        if self._control is None:
            if now - self._lost_since > float(self._arguments["patience"]):
                self._done = True
            else:
                self._connect()
            return
        if now - self._last_received > LEASE * self._limit:
            self._lose_driver()
            return
        if now - self._last_heartbeat >= self._limit / HEARTBEATS:
            self._last_heartbeat = now
            self._heartbeats.send(self._arguments["host"], self._control.other_end)
            self._send({"beat": True})
        if now - self._last_check >= _CHECK_SECONDS:
            self._last_check = now
            self._trainers.kill_stopped()

    # ---- orders of the driver ----------------------------------------------------------------------------------------
    def _begin(self, message: Message) -> None:
        """Records the membership of a new generation, for its trainers."""
        self._commits.words[commit_store.UPDATED] = 0
        self._membership = message["begin"]

    def _update(self, message: Message) -> None:
        self._commits.words[commit_store.UPDATED] = message["update"]

    def _end_generation(self, message: Message) -> None:
        self._ending.add(message["end"])
        self._kill(message["end"])
        self._clear_if_over()

    def _kill(self, generation: int) -> None:
        self._trainers.kill(generation)
        self._helpers.kill()

    def _clear_if_over(self) -> None:
        for generation in sorted(self._ending):
            if not any(trainer.generation <= generation for trainer in self._trainers.living()):
                self._ending.discard(generation)
                self._trainers.clear(generation)
                newest = self._commits.commits()[-1:]  # the newest commit
                self._send({"clear": generation, "sealed": self._commits.words[commit_store.SEALED], "newest": newest})
                remove_orphans(self._job_began)

    def _snapshot(self, message: Message) -> None:
        """Writes the newest sealed commit to the folder, in the background."""

        def handler() -> None:
            try:
                number = snapshots.save(message["snapshot"], self._commits)
                self._send({"snapshot": number})
            except OSError as error:
                self._send({"snapshot": -1, "why": str(error)})

        threading.Thread(target=handler, daemon=True).start()

    # ---- stubs and trainers ------------------------------------------------------------------------------------------
    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        peer = Peer(connection)
        if not peer.of_this_user():
            peer.close()
            return
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._receive(peer))

    def _receive(self, peer: Peer) -> None:
        try:
            message, fds = peer.receive()
        except EOFError:
            self._selector.unregister(peer)
            self._trainers.stub_closed(peer)
            peer.close()
            return
        if "stub" in message:
            self._trainers.start(message, fds, peer)
        elif "signal" in message:
            self._trainers.signal(peer, message["signal"])
        elif "trainer" in message:
            with contextlib.suppress(OSError):
                peer.send({"host": self._arguments["host"], "membership": self._membership}, self._fds)
        elif "modules" in message:
            self._zygotes.load(message["modules"])
        elif (trainer := self._trainers.record_progress(peer.group, message["progress"])) is not None:
            self._send({**message, "rank": trainer.rank, "generation": trainer.generation})

    def _ended(self, trainer: Trainer) -> None:
        report = {
            "rank": trainer.rank,
            "generation": trainer.generation,
            "status": trainer.status,
            "cause": trainer.cause,
        }
        self._send({"ended": {**report, "progress": trainer.progress}})
        self._clear_if_over()

    # ---- the end -----------------------------------------------------------------------------------------------------
    def _end_all(self) -> None:
        self._kill(_ALL_GENERATIONS)
        self._trainers.clear(_ALL_GENERATIONS)
        self._zygotes.end()
        until = time.monotonic() + _KILL_SECONDS
        while (remaining := descendants(os.getpid())) and time.monotonic() < until:
            for pid in remaining:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.002)
        remove_orphans(self._job_began)


def main() -> int:
    """Runs an agent. Its arguments are one line of JSON on standard input."""
    arguments = json.loads(sys.stdin.readline())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it
    agent = Agent(arguments)
    signal.signal(signal.SIGTERM, agent.leave)
    if arguments.get("local"):
        die_with_parent(signal.SIGTERM)  # SIGTERM, because the agent must end processes and remove files
    agent.run()
    return 0
