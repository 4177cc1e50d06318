"""The zygotes of a host: processes with the program's modules loaded, from which trainers are forked.

The agent's `Trainers` ask `Zygotes` to start a rank.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import subprocess
from typing import Any

from ringcomm._src.elastic.agent.peers import Message, Peer
from ringcomm._src.elastic.agent.processes import in_own_session, signal_group

_NUMBERED = re.compile(r"python[\d.]*")
_RANK_ONLY = re.compile(r"PMI.*|OMPI_COMM_WORLD_(LOCAL_|NODE_)?RANK|RINGCOMM_ELASTIC_GENERATION")
_LISTED = 4000  # maximum number of modules that a zygote is asked to load
_WORTH_IT = 30  # modules that trainers have loaded and the zygote has not, for which a new zygote pays off


def python_words(command: list[str]) -> list[str] | None:
    """Returns the words of the interpreter and its options, or None if a zygote cannot run the command.

    A zygote can run a script or a module.
    """
    if not command or not _NUMBERED.fullmatch(os.path.basename(command[0])):
        return None
    at = 1
    while at < len(command) and command[at] in ("-u", "-O", "-OO", "-B"):
        at += 1
    runs = at < len(command) and (command[at] == "-m" or not command[at].startswith("-"))
    return command[:at] if runs and len(command) > at + (command[at] == "-m") else None


class Zygote:
    """A zygote process."""

    def __init__(self, words: list[str], how: Message, modules: list[str]) -> None:
        mine, theirs = socket.socketpair()
        self.peer, self.ready, self.pids = Peer(mine), False, set[int]()
        self.loaded: set[str] = set()  # modules of installed packages
        environment = {name: value for name, value in how["env"].items() if not _RANK_ONLY.fullmatch(name)}
        with theirs:
            self.process = subprocess.Popen(
                [*words, "-c", "from ringcomm._src.elastic.agent.zygote import main; main()", str(theirs.fileno())],
                cwd=how["cwd"],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                preexec_fn=in_own_session,
            )
        self.peer.tell({"command": how["command"], "interpreter": len(words), "modules": modules})

    def end(self) -> None:
        self.peer.close()
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()


class Zygotes:
    """All zygotes: the current one, a possible successor that loads more modules, and old ones with live children."""

    trainers: Any  # a `Trainers`, which forks and starts cold, and receives the zygotes' messages

    def __init__(self, selector: selectors.BaseSelector, wanted: bool) -> None:
        self._selector = selector
        self._now: Zygote | None = None
        self._next: Zygote | None = None
        self._older: list[Zygote] = []
        self._waiting: list[Any] = []  # trainers that wait for a zygote
        self._modules: list[str] = []
        self._why_cold = "" if wanted else "none is wanted"

    def start(self, trainer: Any) -> None:
        """Starts a trainer by a fork as soon as a zygote is ready, or cold if there will be none."""
        words = python_words(trainer.how["command"])
        if self._why_cold or words is None:
            self.trainers.start_cold(trainer)
            return
        if self._now is None:
            self._now = self._make(words, trainer.how)
        if self._now.ready:
            self._fork(trainer)
        else:
            self._waiting.append(trainer)

    def _fork(self, trainer: Any) -> None:
        assert self._now is not None
        try:
            self.trainers.fork(self._now.peer, trainer)
        except OSError:  # the zygote has just ended
            self.trainers.start_cold(trainer)

    def _make(self, words: list[str], how: Message) -> Zygote:
        self._words, self._how = words, how
        zygote = Zygote(words, how, self._modules)
        self._selector.register(zygote.peer, selectors.EVENT_READ, lambda: self._hear(zygote))
        return zygote

    def load(self, modules: list[str]) -> None:
        """Loads the modules that trainers have imported in a new zygote, which becomes the current one."""
        if self._now is None or self._next is not None or len(set(modules) - self._now.loaded) < _WORTH_IT:
            return
        self._modules = sorted({*self._modules, *modules})[:_LISTED]
        self._next = self._make(self._words, self._how)

    def _hear(self, zygote: Zygote) -> None:
        try:
            message, _ = zygote.peer.receive()
        except EOFError:
            self._lost(zygote)
            return
        if "forked" in message:
            zygote.pids.add(message["forked"])
            self.trainers.forked(message)
        elif "ended" in message:
            zygote.pids.discard(message["ended"])
            self.trainers.ended(message["ended"], message["status"])
            self._drop_idle()
        elif "ready" in message:
            zygote.ready, zygote.loaded = True, set(message["ready"])
            self._use(zygote)
        elif "unfit" in message:
            self._why_cold = message["unfit"]
            self._lost(zygote)

    def _use(self, zygote: Zygote) -> None:
        if zygote is self._next:
            if self._now is not None:
                self._older.append(self._now)
            self._now, self._next = zygote, None
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._fork(one)
        self._drop_idle()

    def _drop_idle(self) -> None:
        for old in [old for old in self._older if not old.pids]:
            self._forget(old)

    def _forget(self, zygote: Zygote) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(zygote.peer)
        zygote.end()
        if zygote in self._older:
            self._older.remove(zygote)

    def _lost(self, zygote: Zygote) -> None:
        """Handles the end of a zygote. If it had been ready, the next start makes another; else trainers start cold."""
        self._forget(zygote)
        if zygote is self._next:
            self._next = None
        if zygote is self._now:
            self._now = None
            if not zygote.ready:
                self._why_cold = self._why_cold or "it ended while it was loading"
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                self.trainers.start_cold(one)
        self.trainers.zygote_lost(zygote.peer)

    @property
    def _all(self) -> list[Zygote]:
        return [one for one in (self._now, self._next, *self._older) if one is not None]

    @property
    def pids(self) -> list[int]:
        return [one.process.pid for one in self._all]

    def end(self) -> None:
        for zygote in self._all:
            for pid in zygote.pids:
                signal_group(pid)
            self._forget(zygote)
