"""The ranks of an elastic job on one host: starts, watches and ends them.

The agent passes on the messages of stubs and zygotes.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from ringcomm._src.elastic.agent.peers import Message, Peer
from ringcomm._src.elastic.agent.processes import in_own_session, signal_group, stat_of
from ringcomm._src.elastic.agent.protocol import ORDER, OWN, STOPPED, STUB
from ringcomm._src.elastic.agent.zygotes import Zygotes

_STOPPED_LOOKS = 2  # consecutive checks that must find a rank stopped


@dataclass
class Trainer:
    rank: int
    generation: int
    stub: Peer
    how: Message  # command, env, cwd, more, cores
    fds: list[int] = field(default_factory=list)  # 0, 1, 2 and those of how["more"], until the start
    pid: int = 0
    zygote: Peer | None = None  # the zygote that forks it
    cold: subprocess.Popen[bytes] | None = None
    status: int | None = None  # as subprocess's return code
    cause: str = OWN
    said: str = ""  # its last report of progress
    stopped: int = 0

    def kill(self, cause: str) -> None:
        if self.status is None:
            self.cause = cause if self.cause == OWN else self.cause
            if self.pid:
                signal_group(self.pid)

    def close_fds(self) -> None:
        while self.fds:
            os.close(self.fds.pop())


class Trainers:
    """All trainers of the host. `ended` is called with each trainer that ends."""

    def __init__(self, ended: Callable[[Trainer], None], zygotes: Zygotes) -> None:
        self._ended, self._zygotes = ended, zygotes
        self._all: list[Trainer] = []
        self._refused = -1  # generations up to this one are over, and are refused

    def living(self) -> list[Trainer]:
        return [one for one in self._all if one.status is None]

    def start(self, message: Message, fds: list[int], stub: Peer) -> None:
        """Starts the rank that a stub requests.

        The message has its command. `fds` are its descriptors 0, 1, 2 and those that the variables
        in message["more"] name.
        """
        one = Trainer(message["rank"], message["generation"], stub, message, fds)
        if one.generation <= self._refused:
            one.close_fds()
            stub.tell({"ended": 1, "go": True})
            return
        self._all.append(one)
        self._zygotes.start(one)

    def fork(self, zygote: Peer, one: Trainer) -> None:
        if one.cause != OWN:  # killed while it waited for the zygote
            self._end(one, 1)
            return
        zygote.send({"start": one.how, "rank": one.rank, "generation": one.generation}, one.fds)
        one.zygote = zygote
        one.close_fds()

    def forked(self, message: Message) -> None:
        """Records the process of a trainer that a zygote has forked."""
        for one in self._all:
            if (one.rank, one.generation) == (message["rank"], message["generation"]):
                one.pid = message["forked"]
                if one.cause != OWN:  # killed while the zygote forked it
                    one.kill(one.cause)

    def start_cold(self, one: Trainer) -> None:
        """Starts a trainer without a zygote: a new interpreter, or any other command."""
        if one.cause != OWN:
            self._end(one, 1)
            return
        fds = list(one.fds)
        environment = one.how["env"] | {name: str(fd) for name, fd in zip(one.how["more"], fds[3:], strict=True)}

        def in_child() -> None:
            in_own_session()
            os.sched_setaffinity(0, one.how["cores"])
            for number in range(3):
                os.dup2(fds[number], number)

        try:
            one.cold = subprocess.Popen(
                one.how["command"], cwd=one.how["cwd"], env=environment, preexec_fn=in_child, pass_fds=fds[3:]
            )
            one.pid = one.cold.pid
        except (OSError, subprocess.SubprocessError) as error:
            one.said = str(error)
            self._end(one, 127)
        one.close_fds()

    # ---- their ends --------------------------------------------------------------------------------------------------
    def reap_cold(self) -> None:
        for one in self.living():
            if one.cold is not None and (status := one.cold.poll()) is not None:
                self._end(one, status)

    def ended(self, pid: int, status: int) -> None:
        """Records the end of a trainer that a zygote has reported."""
        for one in self.living():
            if one.pid == pid:
                self._end(one, status)

    def zygote_lost(self, zygote: Peer) -> None:
        """Ends the trainers of a zygote that is lost: its children die with it, and requested forks do not happen."""
        for one in self.living():
            if one.zygote is zygote:
                one.cause = ORDER
                self._end(one, -signal.SIGKILL)

    def _end(self, one: Trainer, status: int) -> None:
        one.close_fds()
        one.status = status
        if one.pid:  # kills processes that the trainer has started and left
            signal_group(one.pid)
        one.stub.tell({"ended": status, "go": status == 0})
        self._ended(one)

    def said(self, group: int, said: str) -> Trainer | None:
        """Records progress that a process of this group reports: a trainer, or a process that it has started."""
        one = next((one for one in self.living() if one.pid == group), None)
        if one is not None:
            one.said = said
        return one

    def stub_gone(self, stub: Peer) -> None:
        for one in self._all:
            if one.stub is stub:
                one.kill(STUB)

    def signal(self, stub: Peer, number: int) -> None:
        for one in self.living():
            if one.stub is stub and one.pid:
                signal_group(one.pid, number)

    def look_for_stopped(self) -> None:
        for one in self.living():
            one.stopped = one.stopped + 1 if one.pid and _is_stopped(one.pid) else 0
            if one.stopped >= _STOPPED_LOOKS:
                one.kill(STOPPED)

    def kill(self, generation: int) -> None:
        """Kills the trainers of the generations up to this one, and refuses later starts in them."""
        self._refused = max(self._refused, generation)
        for one in self._all:
            if one.generation <= generation:
                one.kill(ORDER)

    def clear(self, generation: int) -> None:
        """Forgets the generations up to this one, which are over. Their stubs may end."""
        mine = [one for one in self._all if one.generation <= generation]
        self._all = [one for one in self._all if one.generation > generation]
        for one in mine:
            one.stub.tell({"ended": one.status, "go": True})


def _is_stopped(pid: int) -> bool:
    try:
        return stat_of(pid)[0] == "T"
    except OSError:
        return False
