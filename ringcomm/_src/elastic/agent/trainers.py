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

_STOPPED_CHECKS = 2  # consecutive checks that must find a rank stopped


@dataclass
class Trainer:
    rank: int
    generation: int
    stub: Peer
    request: Message  # command, env, cwd, more, cores
    fds: list[int] = field(default_factory=list)  # 0, 1, 2 and those of request["more"]; empty after the start
    pid: int = 0
    zygote: Peer | None = None  # the zygote that forks it
    cold: subprocess.Popen[bytes] | None = None
    status: int | None = None  # as subprocess's return code
    cause: str = OWN
    progress: str = ""  # its last report of progress
    stopped_checks: int = 0

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
        return [trainer for trainer in self._all if trainer.status is None]

    def start(self, message: Message, fds: list[int], stub: Peer) -> None:
        """Starts the rank that a stub requests.

        `message` contains the rank's command. `fds` are the rank's descriptors 0, 1 and 2, then one
        for each environment variable in message["more"], which contains a descriptor's number.
        """
        trainer = Trainer(message["rank"], message["generation"], stub, message, fds)
        if trainer.generation <= self._refused:
            trainer.close_fds()
            stub.try_send({"ended": 1, "go": True})
            return
        self._all.append(trainer)
        self._zygotes.start(trainer)

    def fork(self, zygote: Peer, trainer: Trainer) -> None:
        if trainer.cause != OWN:  # killed while it waited for the zygote
            self._end(trainer, 1)
            return
        zygote.send({"start": trainer.request, "rank": trainer.rank, "generation": trainer.generation}, trainer.fds)
        trainer.zygote = zygote
        trainer.close_fds()

    def forked(self, message: Message) -> None:
        """Records the process of a trainer that a zygote has forked."""
        for trainer in self._all:
            if (trainer.rank, trainer.generation) == (message["rank"], message["generation"]):
                trainer.pid = message["forked"]
                if trainer.cause != OWN:  # killed while the zygote forked it
                    trainer.kill(trainer.cause)

    def start_cold(self, trainer: Trainer) -> None:
        """Starts a trainer without a zygote: a new interpreter, or any other command."""
        if trainer.cause != OWN:
            self._end(trainer, 1)
            return
        fds = list(trainer.fds)
        environment = trainer.request["env"] | {
            name: str(fd) for name, fd in zip(trainer.request["more"], fds[3:], strict=True)
        }

        def in_child() -> None:
            in_own_session()
            os.sched_setaffinity(0, trainer.request["cores"])
            for number in range(3):
                os.dup2(fds[number], number)

        try:
            trainer.cold = subprocess.Popen(
                trainer.request["command"],
                cwd=trainer.request["cwd"],
                env=environment,
                preexec_fn=in_child,
                pass_fds=fds[3:],
            )
            trainer.pid = trainer.cold.pid
        except (OSError, subprocess.SubprocessError) as error:
            trainer.progress = str(error)
            self._end(trainer, 127)
        trainer.close_fds()

    # ---- their ends --------------------------------------------------------------------------------------------------
    def reap_cold(self) -> None:
        for trainer in self.living():
            if trainer.cold is not None and (status := trainer.cold.poll()) is not None:
                self._end(trainer, status)

    def ended(self, pid: int, status: int) -> None:
        """Records the end of a trainer that a zygote has reported."""
        for trainer in self.living():
            if trainer.pid == pid:
                self._end(trainer, status)

    def zygote_lost(self, zygote: Peer) -> None:
        """Ends the trainers of a dead zygote: they died with it, or were not forked."""
        for trainer in self.living():
            if trainer.zygote is zygote:
                trainer.cause = ORDER
                self._end(trainer, -signal.SIGKILL)

    def _end(self, trainer: Trainer, status: int) -> None:
        trainer.close_fds()
        trainer.status = status
        if trainer.pid:  # kills processes that the trainer has started and left
            signal_group(trainer.pid)
        trainer.stub.try_send({"ended": status, "go": status == 0})
        self._ended(trainer)

    def record_progress(self, group: int, progress: str) -> Trainer | None:
        """Records progress that a trainer, or a process that it has started, reports."""
        trainer = next((trainer for trainer in self.living() if trainer.pid == group), None)
        if trainer is not None:
            trainer.progress = progress
        return trainer

    def stub_closed(self, stub: Peer) -> None:
        for trainer in self._all:
            if trainer.stub is stub:
                trainer.kill(STUB)

    def signal(self, stub: Peer, number: int) -> None:
        for trainer in self.living():
            if trainer.stub is stub and trainer.pid:
                signal_group(trainer.pid, number)

    def kill_stopped(self) -> None:
        for trainer in self.living():
            trainer.stopped_checks = trainer.stopped_checks + 1 if trainer.pid and _is_stopped(trainer.pid) else 0
            if trainer.stopped_checks >= _STOPPED_CHECKS:
                trainer.kill(STOPPED)

    def kill(self, generation: int) -> None:
        """Kills the trainers of the generations up to this one, and refuses later starts."""
        self._refused = max(self._refused, generation)
        for trainer in self._all:
            if trainer.generation <= generation:
                trainer.kill(ORDER)

    def clear(self, generation: int) -> None:
        """Forgets the generations up to this one, which are over. Their stubs may end."""
        over = [trainer for trainer in self._all if trainer.generation <= generation]
        self._all = [trainer for trainer in self._all if trainer.generation > generation]
        for trainer in over:
            trainer.stub.try_send({"ended": trainer.status, "go": True})


def _is_stopped(pid: int) -> bool:
    try:
        return stat_of(pid)[0] == "T"
    except OSError:
        return False
