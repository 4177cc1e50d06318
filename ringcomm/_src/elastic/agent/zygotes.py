"""The zygotes of a host: processes with the program's modules, from which trainers are forked.

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
_MAX_MODULES = 4000  # maximum number of modules that a zygote is asked to load
_MIN_NEW_MODULES = 30  # minimum number of modules to load for which a new zygote pays off


def python_words(command: list[str]) -> list[str] | None:
    """Returns the words of the interpreter and its options.

    Returns None if a zygote cannot run the command. A zygote can run a script or a module.
    """
    if not command or not _NUMBERED.fullmatch(os.path.basename(command[0])):
        return None
    index = 1
    while index < len(command) and command[index] in ("-u", "-O", "-OO", "-B"):
        index += 1
    is_program = index < len(command) and (command[index] == "-m" or not command[index].startswith("-"))
    return command[:index] if is_program and len(command) > index + (command[index] == "-m") else None


class Zygote:
    """A zygote process."""

    def __init__(self, words: list[str], request: Message, modules: list[str]) -> None:
        own_end, child_end = socket.socketpair()
        self.peer, self.ready, self.pids = Peer(own_end), False, set[int]()
        self.loaded: set[str] = set()  # modules of installed packages
        environment = {name: value for name, value in request["env"].items() if not _RANK_ONLY.fullmatch(name)}
        with child_end:
            self.process = subprocess.Popen(
                [*words, "-c", "from ringcomm._src.elastic.agent.zygote import main; main()", str(child_end.fileno())],
                cwd=request["cwd"],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
                preexec_fn=in_own_session,
            )
        self.peer.try_send({"command": request["command"], "interpreter": len(words), "modules": modules})

    def end(self) -> None:
        self.peer.close()
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()


class Zygotes:
    """All zygotes: the current one, possibly its successor, and old ones with live children."""

    trainers: Any  # the agent's `Trainers`: starts processes, and receives the zygotes' messages

    def __init__(self, selector: selectors.BaseSelector, enabled: bool) -> None:
        self._selector = selector
        self._current: Zygote | None = None
        self._successor: Zygote | None = None
        self._older: list[Zygote] = []
        self._waiting: list[Any] = []  # trainers that wait for a zygote
        self._modules: list[str] = []
        self._cold_reason = "" if enabled else "zygotes are disabled (--cold-start)"

    def start(self, trainer: Any) -> None:
        """Forks a trainer when a zygote is ready. Starts it cold if there will be no zygote."""
        words = python_words(trainer.request["command"])
        if self._cold_reason or words is None:
            self.trainers.start_cold(trainer)
            return
        if self._current is None:
            self._current = self._make(words, trainer.request)
        if self._current.ready:
            self._fork(trainer)
        else:
            self._waiting.append(trainer)

    def _fork(self, trainer: Any) -> None:
        assert self._current is not None
        try:
            self.trainers.fork(self._current.peer, trainer)
        except OSError:  # the zygote has just ended
            self.trainers.start_cold(trainer)

    def _make(self, words: list[str], request: Message) -> Zygote:
        self._words, self._request = words, request
        zygote = Zygote(words, request, self._modules)
        self._selector.register(zygote.peer, selectors.EVENT_READ, lambda: self._receive(zygote))
        return zygote

    def load(self, modules: list[str]) -> None:
        """Imports modules of trainers in a new zygote, which replaces the current one."""
        if (
            self._current is None
            or self._successor is not None
            or len(set(modules) - self._current.loaded) < _MIN_NEW_MODULES
        ):
            return
        self._modules = sorted({*self._modules, *modules})[:_MAX_MODULES]
        self._successor = self._make(self._words, self._request)

    def _receive(self, zygote: Zygote) -> None:
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
            self._cold_reason = message["unfit"]
            self._lost(zygote)

    def _use(self, zygote: Zygote) -> None:
        if zygote is self._successor:
            if self._current is not None:
                self._older.append(self._current)
            self._current, self._successor = zygote, None
        waiting, self._waiting = self._waiting, []
        for trainer in waiting:
            self._fork(trainer)
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
        """Handles the end of a zygote.

        If it was ready, the next start creates another one; otherwise trainers start cold.
        """
        self._forget(zygote)
        if zygote is self._successor:
            self._successor = None
        if zygote is self._current:
            self._current = None
            if not zygote.ready:
                self._cold_reason = self._cold_reason or "the zygote ended while it imported modules"
            waiting, self._waiting = self._waiting, []
            for trainer in waiting:
                self.trainers.start_cold(trainer)
        self.trainers.zygote_lost(zygote.peer)

    @property
    def _all(self) -> list[Zygote]:
        return [zygote for zygote in (self._current, self._successor, *self._older) if zygote is not None]

    @property
    def pids(self) -> list[int]:
        return [zygote.process.pid for zygote in self._all]

    def end(self) -> None:
        for zygote in self._all:
            for pid in zygote.pids:
                signal_group(pid)
            self._forget(zygote)
