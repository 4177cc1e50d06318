"""Custom algorithms: schedules as Python data that the core proves, compares between ranks, and runs.

An algorithm is a function ``fn(rank, size)`` that returns the schedule of a rank: a list of rounds, each a list of
steps on numbered blocks of the buffer. The sends of a round read their blocks as they were when the round began; the
round ends when its sends and receives are complete. A ring::

    from ringcomm.algorithms import reduce, receive, send

    def ring(rank, size):
        to, source = (rank + 1) % size, (rank - 1) % size
        first = [[send(to, (rank - i) % size), reduce(source, (rank - i - 1) % size)] for i in range(size - 1)]
        second = [[send(to, (rank + 1 - i) % size), receive(source, (rank - i) % size)] for i in range(size - 1)]
        return first + second

    ringcomm.register_algorithm("my_ring", ring)
    y = comm.allreduce(x, algorithm="my_ring")

Before an algorithm runs for the first time on a communicator, the schedules of all ranks are proved to compute the
collective's result, and compared between ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringcomm._src.core import _core
from ringcomm._src.core._core import Step

COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")  # the collectives without a root
LONGEST_NAME = 15  # bytes


def send(peer: int, block: int) -> Step:
    """Sends ``block`` to ``peer``."""
    return Step("send", peer, block, -1, False)


def receive(peer: int, block: int) -> Step:
    """Receives ``block`` from ``peer``, replacing its values."""
    return Step("receive", peer, block, -1, False)


def reduce(peer: int, block: int, incoming_first: bool | None = None) -> Step:
    """Receives a part from ``peer`` and reduces it into ``block``: ``block = block op part``.

    If ``incoming_first``, ``block = part op block``. If it is None, the operand with the lowest rank's contribution
    comes first, so that results are bitwise identical on all ranks.
    """
    return Step("reduce", peer, block, -1, incoming_first)


def combine(source: int, block: int, incoming_first: bool | None = None) -> Step:
    """Reduces block ``source`` into ``block``, both of this rank. ``incoming_first``: as in :func:`reduce`."""
    return Step("combine", -1, block, source, incoming_first)


def copy(source: int, block: int) -> Step:
    """Copies block ``source`` to ``block``, both of this rank."""
    return Step("copy", -1, block, source, False)


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A registered algorithm; see :func:`register_algorithm`."""

    name: str
    collective: str
    fn: Callable[[int, int], Any]
    blocks: int | Callable[[int], int] | None
    temps: Sequence[int] | Callable[[int], Sequence[int]]

    def schedules(self, size: int) -> list[_core.Schedule]:
        """Returns the proved schedules of all ranks, with operand orders filled in.

        Raises ValueError, with the reason, if they do not compute the collective.
        """
        given = [self.fn(rank, size) for rank in range(size)]
        if all(isinstance(one, _core.Schedule) for one in given):
            made = [self._schedule(one.rank, one.size, one.blocks, one.temps, one.rounds) for one in given]
        else:
            rounds = [_rounds(one) for one in given]
            blocks = self._blocks(size, (step for rank in rounds for one in rank for step in one))
            temps = self.temps(size) if callable(self.temps) else self.temps
            made = [self._schedule(rank, size, blocks, temps, rounds[rank]) for rank in range(size)]
        why = _core.prove(made)
        if why is not None:
            raise ValueError(f"algorithm {self.name!r} is no {self.collective} on {size} ranks: {why}")
        return made

    def _schedule(
        self, rank: int, size: int, blocks: int, temps: Sequence[int], rounds: list[list[Step]]
    ) -> _core.Schedule:
        try:
            return _core.Schedule(self.collective, self.name, rank, size, 0, blocks, temps, rounds)
        except ValueError as error:
            raise ValueError(f"algorithm {self.name!r}, rank {rank}: {error}") from None

    def _blocks(self, size: int, steps: Iterable[Step]) -> int:
        fixed = {"allgather": size, "reducescatter": size, "alltoall": 2 * size, "barrier": 1}
        if self.collective in fixed:
            return fixed[self.collective]
        if self.blocks is not None:
            return self.blocks(size) if callable(self.blocks) else self.blocks
        return 1 + max((max(step.block, step.source) for step in steps), default=0)


def _rounds(given: Any) -> list[list[Step]]:
    """Converts `fn`'s result to rounds; a step outside of a list is a round."""
    return [[one] if isinstance(one, Step) else list(one) for one in given]


_registered: dict[tuple[str, str], Algorithm] = {}


def register_algorithm(
    name: str,
    fn: Callable[[int, int], Any],
    collective: str = "allreduce",
    blocks: int | Callable[[int], int] | None = None,
    temps: Sequence[int] | Callable[[int], Sequence[int]] = (),
) -> None:
    """Registers an algorithm, so that calls can name it in ``algorithm=name``.

    ``RINGCOMM_ALGORITHM=name`` can name it too, if it is registered before ``init``. All ranks register the same
    algorithm.

    Args:
        name: at most 15 bytes, without ``:``, ``/`` and ``#``; not the name of a built-in. Registering a name again
            replaces the algorithm for communicators made later, and for named operations.
        fn: ``fn(rank, size)`` returns a list of rounds, each a list of steps made by :func:`send`, :func:`receive`,
            :func:`reduce`, :func:`combine`, :func:`copy` (a step outside of a list is a round), or a
            ``_core.Schedule``. Every rank calls it for every rank, so its result may depend on its arguments only.
        collective: "allreduce", "allgather", "reducescatter", "alltoall" or "barrier". For allreduce, the buffer is
            divided evenly into blocks. For allgather and reducescatter, block i is rank i's. For alltoall, block q is
            sent to rank q, and block size+q is received from it.
        blocks: number of blocks of an allreduce, or a function of the size that returns it; None: the number of blocks
            that the steps name.
        temps: scratch blocks, numbered from ``blocks`` on: for each, the number of a data block of equal size; or a
            function of the size that returns them.

    Raises:
        ValueError: a bad name or collective (immediately), or an algorithm that is not proved correct (at its first use
            on a communicator).
        ringcomm.MismatchError: at first use, on every rank, if ranks registered different algorithms.
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"own algorithms are for {', '.join(COLLECTIVES)}; not {collective!r}")
    if not name or len(name.encode()) > LONGEST_NAME or set(name) & set(":/#"):
        raise ValueError(f"an algorithm's name has 1 to {LONGEST_NAME} bytes, without ':', '/' and '#'; got {name!r}")
    if is_builtin(collective, name):
        raise ValueError(f"{name!r} is a built-in {collective} algorithm")
    if temps and collective == "allreduce" and blocks is None:
        raise ValueError("with scratch blocks, give the number of data blocks too")
    if not callable(fn):
        raise TypeError("fn must be a function of (rank, size)")
    _registered[collective, name] = Algorithm(name, collective, fn, blocks, temps)


def registered(collective: str, name: str) -> Algorithm | None:
    return _registered.get((collective, name))


def all_registered() -> list[Algorithm]:
    return list(_registered.values())


def is_builtin(collective: str, name: str) -> bool:
    """Returns True if the name is built into the core: an algorithm, or a route without a schedule."""
    try:
        _core.check_algorithm(collective, name)
    except ValueError:
        return False
    return True


def require_known(collective: str, name: str) -> None:
    """Raises ValueError unless the algorithm is a built-in or registered."""
    if registered(collective, name) is None:
        _core.check_algorithm(collective, name)
