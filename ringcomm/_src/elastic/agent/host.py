"""The agent: it stores a host's commits, starts and ends its ranks, and reports events to the driver.

One thread waits for all events: messages of the driver, stubs, trainers and zygotes, the ends of
helpers, the clock. If driver and agent receive nothing from each other for a while, each treats the
other as lost. The agent then ends its ranks, so that the ranks of an isolated host do no harm, and
continues to connect to the driver.
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

from ringcomm._src.elastic.agent import keeper, snapshots
from ringcomm._src.elastic.agent.beats import Beats
from ringcomm._src.elastic.agent.control import Control
from ringcomm._src.elastic.agent.helpers import Helpers, descendants
from ringcomm._src.elastic.agent.peers import Message, Peer, listen
from ringcomm._src.elastic.agent.processes import adopt_orphans, die_with_parent, wake_at_signals
from ringcomm._src.elastic.agent.segments import remove_orphans
from ringcomm._src.elastic.agent.trainers import Trainer, Trainers
from ringcomm._src.elastic.agent.zygotes import Zygotes

BEATS = 10  # heartbeats per limit of silence
LEASE = 0.9  # fraction of the limit of silence after which an agent gives up, before the driver does
_CONNECT = 1.0  # seconds for one attempt to connect
_ALL = sys.maxsize  # a generation number that includes all generations
_LOOK = 0.5  # seconds between two checks for stopped ranks
_GONE = 2.0  # seconds to wait for killed processes


class Agent:
    """The agent of a host.

    Fields of `given`: job, host, key, addresses of the driver; limit and patience (seconds of
    silence until ranks are ended, and until the agent ends too); age (upper bound of the seconds
    since the job began); zygote (True if one may be used); snapshot (a folder); verbose.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self._given, self._limit = given, float(given["limit"])
        self._job_began = time.time() - float(given["age"])
        self._selector = selectors.DefaultSelector()
        self._zygotes = Zygotes(self._selector, given["zygote"])
        self._trainers = self._zygotes.trainers = Trainers(self._ended, self._zygotes)
        self._fds = keeper.make()
        self._keeper = keeper.Keeper(self._fds)
        self._helpers = Helpers(given["verbose"])
        self._ending: set[int] = set()  # generations for which the driver awaits a "clear" message
        self._membership: Message = {"generation": 0, "keeps": True}  # the last membership that the driver sent
        self._control: Control | None = None
        self._beats = Beats(bytes.fromhex(given["key"]))
        self._lost_since = self._heard = self._looked = self._beaten = time.monotonic()
        self._done = False
        self._lock = threading.Lock()  # guards the connection to the driver: snapshot threads use it too
        self._acts: dict[str, Callable[[Message], None]] = {
            "begin": self._begin,
            "update": self._update,
            "end": self._end_generation,
            "help": self._helpers.start,
            "snapshot": self._snapshot,
            "bye": self.leave,
        }
        if given.get("snapshot"):
            try:
                snapshots.load(given["snapshot"], self._keeper)
            except OSError as error:  # continuing would overwrite the snapshot
                raise SystemExit(f"ringrun: the snapshot cannot be read: {error}") from None

    def run(self) -> None:
        adopt_orphans()
        try:
            listener = listen(self._given["job"])
        except OSError:  # an agent of this job runs already; the driver could not reach it for a while
            return
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        self._selector.register(self._beats, selectors.EVENT_READ, self._hear_beat)
        wakeup, _ = wake_at_signals()
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._reap(wakeup))
        try:
            self._connect()
            while not self._done:
                for key, _ in self._selector.select(self._limit / BEATS / 4):
                    key.data()
                self._tick()
        finally:
            self._end_all()

    def leave(self, *_signal: Any) -> None:
        """Requests the end of the main loop. It raises no exception, which a destructor could swallow."""
        self._done = True

    def _reap(self, wakeup: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 1 << 10)
        self._trainers.reap_cold()
        for message in self._helpers.reap():
            self._say(message)
        with contextlib.suppress(ChildProcessError):  # adopted orphans
            mine = {*self._zygotes.pids, *(one.pid for one in self._trainers.living()), *self._helpers.pids}
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in mine:
                os.waitpid(found.si_pid, 0)

    # ---- the driver --------------------------------------------------------------------------------------------------
    def _connect(self) -> bool:
        """Tries every address once. If an address refuses, no driver is there, and the job is over."""
        refused = 0
        for host, port in self._given["addresses"]:
            try:
                connection = socket.create_connection((host, port), _CONNECT)
                control = Control(connection, bytes.fromhex(self._given["key"]), driver=False)
                control.send({"host": self._given["host"], "pid": os.getpid(), "name": socket.gethostname()})
            except ConnectionRefusedError:
                refused += 1
                continue
            except (OSError, EOFError):
                continue
            self._control = control
            self._selector.register(control, selectors.EVENT_READ, self._hear_driver)
            self._heard = time.monotonic()
            return True
        self._done |= refused > 0
        return False

    def _hear_beat(self) -> None:
        if self._beats.receive() is not None:
            self._heard = time.monotonic()

    def _say(self, message: Message) -> None:
        with self._lock:
            if self._control is not None:
                with contextlib.suppress(OSError):
                    self._control.send(message)

    def _hear_driver(self) -> None:
        assert self._control is not None
        try:
            message = self._control.receive()
        except EOFError:
            self._lose_driver()
            return
        self._heard = time.monotonic()
        for word, act in self._acts.items():
            if word in message:
                act(message)

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
            if now - self._lost_since > float(self._given["patience"]):
                self._done = True
            else:
                self._connect()
            return
        if now - self._heard > LEASE * self._limit:
            self._lose_driver()
            return
        if now - self._beaten >= self._limit / BEATS:
            self._beaten = now
            self._beats.send(self._given["host"], self._control.other_end)
            self._say({"beat": True})
        if now - self._looked >= _LOOK:
            self._looked = now
            self._trainers.look_for_stopped()

    # ---- orders of the driver ----------------------------------------------------------------------------------------
    def _begin(self, message: Message) -> None:
        """Records the membership of a new generation, for its trainers."""
        self._keeper.words[keeper.UPDATED] = 0
        self._membership = message["begin"]

    def _update(self, message: Message) -> None:
        self._keeper.words[keeper.UPDATED] = message["update"]

    def _end_generation(self, message: Message) -> None:
        self._ending.add(message["end"])
        self._kill(message["end"])
        self._clear_if_over()

    def _kill(self, generation: int) -> None:
        self._trainers.kill(generation)
        self._helpers.kill()

    def _clear_if_over(self) -> None:
        for generation in sorted(self._ending):
            if not any(one.generation <= generation for one in self._trainers.living()):
                self._ending.discard(generation)
                self._trainers.clear(generation)
                held = self._keeper.held()[-1:]  # the newest commit
                self._say({"clear": generation, "sealed": self._keeper.words[keeper.SEALED], "held": held})
                remove_orphans(self._job_began)

    def _snapshot(self, message: Message) -> None:
        """Writes the newest sealed commit to the folder, in the background."""

        def act() -> None:
            try:
                number = snapshots.save(message["snapshot"], self._keeper)
                self._say({"snapshot": number})
            except OSError as error:
                self._say({"snapshot": -1, "why": str(error)})

        threading.Thread(target=act, daemon=True).start()

    # ---- stubs and trainers ------------------------------------------------------------------------------------------
    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        peer = Peer(connection)
        if not peer.of_this_user():
            peer.close()
            return
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._hear(peer))

    def _hear(self, peer: Peer) -> None:
        try:
            message, fds = peer.receive()
        except EOFError:
            self._selector.unregister(peer)
            self._trainers.stub_gone(peer)
            peer.close()
            return
        if "stub" in message:
            self._trainers.start(message, fds, peer)
        elif "signal" in message:
            self._trainers.signal(peer, message["signal"])
        elif "trainer" in message:
            with contextlib.suppress(OSError):
                peer.send({"host": self._given["host"], "membership": self._membership}, self._fds)
        elif "modules" in message:
            self._zygotes.load(message["modules"])
        elif (one := self._trainers.said(peer.group, message["said"])) is not None:
            self._say({**message, "rank": one.rank, "generation": one.generation})

    def _ended(self, one: Trainer) -> None:
        what = {"rank": one.rank, "generation": one.generation, "status": one.status, "cause": one.cause}
        self._say({"ended": {**what, "said": one.said}})
        self._clear_if_over()

    # ---- the end -----------------------------------------------------------------------------------------------------
    def _end_all(self) -> None:
        self._kill(_ALL)
        self._trainers.clear(_ALL)
        self._zygotes.end()
        until = time.monotonic() + _GONE
        while (left := descendants(os.getpid())) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.002)
        remove_orphans(self._job_began)


def main() -> int:
    """Runs an agent. Its arguments are one line of JSON on standard input."""
    given = json.loads(sys.stdin.readline())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it
    agent = Agent(given)
    signal.signal(signal.SIGTERM, agent.leave)
    if given.get("local"):
        die_with_parent(signal.SIGTERM)  # SIGTERM, because the agent must end processes and remove files
    agent.run()
    return 0
