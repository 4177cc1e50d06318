"""Algorithms written by users: schedules as Python data, proved, agreed between ranks, and run by the core.

An algorithm is a function ``fn(rank, size)`` that returns what this rank does: a list of rounds, each a list of steps
on numbered blocks of the buffer. A round's sends read their blocks as they were when the round began; the round ends
when its sends and receives are complete. A ring::

    from ringcomm.algorithms import reduce, receive, send

    def ring(rank, size):
        to, source = (rank + 1) % size, (rank - 1) % size
        first = [[send(to, (rank - i) % size), reduce(source, (rank - i - 1) % size)] for i in range(size - 1)]
        second = [[send(to, (rank + 1 - i) % size), receive(source, (rank - i) % size)] for i in range(size - 1)]
        return first + second

    ringcomm.register_algorithm("my_ring", ring)
    y = comm.allreduce(x, algorithm="my_ring")

Before it runs for the first time on a communicator, the schedules of all its ranks are proved to compute what the
collective promises, and compared between ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringcomm._src.core import _core
from ringcomm._src.core._core import Step

COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")  # those without a root
LONGEST_NAME = 15  # bytes


def send(peer: int, block: int) -> Step:
    """Send ``block`` to ``peer``."""
    return Step("send", peer, block, -1, False)


def receive(peer: int, block: int) -> Step:
    """Receive ``block`` from ``peer``, replacing it."""
    return Step("receive", peer, block, -1, False)


def reduce(peer: int, block: int, incoming_first: bool | None = None) -> Step:
    """Receive a part from ``peer`` and reduce it into ``block``: ``block = block op part``, or ``part op block`` if
    ``incoming_first``.

    Left None, the part that holds the lowest rank's contribution comes first, so that all ranks get the same bits.
    """
    return Step("reduce", peer, block, -1, incoming_first)


def combine(source: int, block: int, incoming_first: bool | None = None) -> Step:
    """Reduce block ``source`` into ``block``, both of this rank. ``incoming_first``: as in :func:`reduce`."""
    return Step("combine", -1, block, source, incoming_first)


def copy(source: int, block: int) -> Step:
    """Copy block ``source`` to ``block``, both of this rank."""
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
        """Of all ranks, operand orders filled in, and proved; ValueError says why they compute something else."""
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
    """A step that stands alone is a round."""
    return [[one] if isinstance(one, Step) else list(one) for one in given]


_registered: dict[tuple[str, str], Algorithm] = {}


def register_algorithm(
    name: str,
    fn: Callable[[int, int], Any],
    collective: str = "allreduce",
    blocks: int | Callable[[int], int] | None = None,
    temps: Sequence[int] | Callable[[int], Sequence[int]] = (),
) -> None:
    """Make ``algorithm=name`` available, and ``RINGCOMM_ALGORITHM=name`` if it is registered before ``init``. All ranks
    register the same.

    Args:
        name: at most 15 bytes, without ``:``, ``/`` and ``#``; not the name of a built-in. Registering a name again
            replaces it for communicators made later, and for named operations.
        fn: ``fn(rank, size)`` gives a list of rounds, each a list of steps made by :func:`send`, :func:`receive`,
            :func:`reduce`, :func:`combine`, :func:`copy` (a step that stands alone is a round of its own), or a
            ``_core.Schedule``. It is called for every rank on every rank, and must depend on nothing else.
        collective: "allreduce", "allgather", "reducescatter", "alltoall" or "barrier". An allreduce cuts the buffer
            evenly into blocks; for allgather and reducescatter block i is rank i's; for alltoall block q goes to rank q
            and block size+q comes from it.
        blocks: of an allreduce: how many, or a function of the size; None: as many as the steps name.
        temps: scratch blocks, numbered from ``blocks`` on: for each, the block whose size it has; or a function of the
            size.

    Raises:
        ValueError: at once for a bad name or collective; at first use on a communicator if the algorithm is not proved
            correct there.
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
    """Whether the core knows the name: an algorithm, or a path that is no schedule."""
    try:
        _core.check_algorithm(collective, name)
    except ValueError:
        return False
    return True


def require_known(collective: str, name: str) -> None:
    """ValueError unless it is built in or registered."""
    if registered(collective, name) is None:
        _core.check_algorithm(collective, name)
