"""Custom algorithms: schedules in Python that the core proves, compares between ranks and runs.

An algorithm is a function ``fn(rank, size)`` that returns the schedule of a rank: a list of rounds,
each a list of steps on numbered blocks of the buffer. The sends of a round read their blocks as
they were when the round began; the round ends when its sends and receives are complete. A ring::

    from ringcomm.algorithms import reduce, receive, send

    def ring(rank, size):
        to, source = (rank + 1) % size, (rank - 1) % size
        first = [[send(to, (rank - i) % size), reduce(source, (rank - i - 1) % size)] for i in range(size - 1)]
        second = [[send(to, (rank + 1 - i) % size), receive(source, (rank - i) % size)] for i in range(size - 1)]
        return first + second

    ringcomm.register_algorithm("my_ring", ring)
    y = comm.allreduce(x, algorithm="my_ring")

Before an algorithm runs for the first time on a communicator, the schedules of all ranks are proved
to compute the collective's result, and compared between ranks.
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
    """Returns the step that sends ``block`` to ``peer``.

    Examples
    --------
    >>> ringcomm.algorithms.send(1, 0)
    Step(kind='send', peer=1, block=0, source=-1, incoming_first=False)
    """
    return Step("send", peer, block, -1, False)


def receive(peer: int, block: int) -> Step:
    """Returns the step that receives ``block`` from ``peer``, replacing its values.

    Examples
    --------
    >>> ringcomm.algorithms.receive(1, 0).kind
    'receive'
    """
    return Step("receive", peer, block, -1, False)


def reduce(peer: int, block: int, incoming_first: bool | None = None) -> Step:
    """Returns the step ``block = block op part``, where ``part`` is received from ``peer``.

    Parameters
    ----------
    peer : int
        Rank that sends the part.
    block : int
        Number of the block.
    incoming_first : bool | None
        True: ``block = part op block``. None: the operand that contains the lowest rank's data is
        the first one, so that results are bitwise identical on all ranks.

    Examples
    --------
    >>> ringcomm.algorithms.reduce(peer=1, block=0).kind
    'reduce'
    """
    return Step("reduce", peer, block, -1, incoming_first)


def combine(source: int, block: int, incoming_first: bool | None = None) -> Step:
    """Returns the step ``block = block op source``, on two blocks of this rank.

    ``incoming_first`` has the same meaning as for :func:`reduce`.

    Examples
    --------
    >>> step = ringcomm.algorithms.combine(source=2, block=0)
    >>> step.source, step.block
    (2, 0)
    """
    return Step("combine", -1, block, source, incoming_first)


def copy(source: int, block: int) -> Step:
    """Returns the step that copies block ``source`` to ``block``, both of this rank.

    Examples
    --------
    >>> ringcomm.algorithms.copy(source=0, block=2).kind
    'copy'
    """
    return Step("copy", -1, block, source, False)


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A registered algorithm; the fields are the arguments of :func:`register_algorithm`.

    Examples
    --------
    >>> from ringcomm.algorithms import Algorithm, receive, send
    >>> def swap(rank, size):  # two ranks only
    ...     return [[send(1 - rank, rank), receive(1 - rank, 1 - rank)]]
    >>> [schedule.rank for schedule in Algorithm("swap", "allgather", swap, None, ()).schedules(2)]
    [0, 1]
    """

    name: str
    collective: str
    fn: Callable[[int, int], Any]
    blocks: int | Callable[[int], int] | None
    temps: Sequence[int] | Callable[[int], Sequence[int]]

    def schedules(self, size: int) -> list[_core.Schedule]:
        """Makes and proves the schedules of all ranks, and sets their operand orders.

        Raises
        ------
        ValueError
            The schedules do not compute the collective; the message has the reason.
        """
        results = [self.fn(rank, size) for rank in range(size)]
        if all(isinstance(result, _core.Schedule) for result in results):
            schedules = [
                self._schedule(given.rank, given.size, given.blocks, given.temps, given.rounds) for given in results
            ]
        else:
            rounds = [_rounds(result) for result in results]
            blocks = self._blocks(size, (step for rank_rounds in rounds for steps in rank_rounds for step in steps))
            temps = self.temps(size) if callable(self.temps) else self.temps
            schedules = [self._schedule(rank, size, blocks, temps, rounds[rank]) for rank in range(size)]
        why = _core.prove(schedules)
        if why is not None:
            raise ValueError(f"algorithm {self.name!r} does not compute {self.collective} on {size} ranks: {why}")
        return schedules

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


def _rounds(result: Any) -> list[list[Step]]:
    """Converts `fn`'s result to rounds; a step that is not in a list becomes a round."""
    return [[item] if isinstance(item, Step) else list(item) for item in result]


_registered: dict[tuple[str, str], Algorithm] = {}


def register_algorithm(
    name: str,
    fn: Callable[[int, int], Any],
    collective: str = "allreduce",
    blocks: int | Callable[[int], int] | None = None,
    temps: Sequence[int] | Callable[[int], Sequence[int]] = (),
) -> None:
    """Registers an algorithm for calls with ``algorithm=name``.

    All ranks must register the same algorithm. If it is registered before ``init``, the option
    ``RINGCOMM_ALGORITHM=name`` can select it too.

    Parameters
    ----------
    name : str
        1 to 15 bytes, without ``:``, ``/`` and ``#``; not the name of a built-in. Registering a
        name again replaces the algorithm for communicators made later, and for named operations.
    fn : Callable[[int, int], Any]
        ``fn(rank, size)`` returns a list of rounds, each a list of steps made by :func:`send`,
        :func:`receive`, :func:`reduce`, :func:`combine`, :func:`copy` (a step that is not in a list
        becomes a round), or a ``_core.Schedule``. Each rank calls ``fn`` for all ranks, so the
        result must depend on the arguments only.
    collective : str
        "allreduce", "allgather", "reducescatter", "alltoall" or "barrier". For allreduce, the
        buffer is divided evenly into blocks. For allgather and reducescatter, block i is rank i's.
        For alltoall, block q is sent to rank q, and block size+q is received from it.
    blocks : int | Callable[[int], int] | None
        Number of blocks of an allreduce, or a function of the size that returns it; None: one more
        than the highest block number in the steps.
    temps : Sequence[int] | Callable[[int], Sequence[int]]
        One entry for each scratch block: the number of a data block of the same length. Scratch
        blocks are numbered from ``blocks`` on. Or a function of the size that returns this list.
        Default: no scratch blocks.

    Raises
    ------
    ValueError
        The name or collective is not valid. Also at the first use on a communicator, if the
        algorithm is not proved correct.
    TypeError
        ``fn`` is not callable.
    ringcomm.MismatchError
        At the first use, on every rank: ranks registered different algorithms.

    Examples
    --------
    >>> from ringcomm.algorithms import receive, reduce, send
    >>> def exchange(rank, size):  # two ranks: each sends all its data to the other
    ...     return [[send(1 - rank, 0), reduce(1 - rank, 0)]]
    >>> ringcomm.register_algorithm("exchange", exchange)
    >>> comm.allreduce(np.ones(3), algorithm="exchange").tolist()
    [2.0, 2.0, 2.0]
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"collective must be one of {', '.join(COLLECTIVES)}; got {collective!r}")
    if not name or len(name.encode()) > LONGEST_NAME or set(name) & set(":/#"):
        raise ValueError(f"name must have 1 to {LONGEST_NAME} bytes, without ':', '/' and '#'; got {name!r}")
    if is_builtin(collective, name):
        raise ValueError(f"{name!r} is a built-in {collective} algorithm; choose another name")
    if temps and collective == "allreduce" and blocks is None:
        raise ValueError("if temps (scratch blocks) is given, blocks (the number of data blocks) must be given too")
    if not callable(fn):
        raise TypeError("fn must be a function of (rank, size)")
    _registered[collective, name] = Algorithm(name, collective, fn, blocks, temps)


def registered(collective: str, name: str) -> Algorithm | None:
    return _registered.get((collective, name))


def all_registered() -> list[Algorithm]:
    return list(_registered.values())


def is_builtin(collective: str, name: str) -> bool:
    """Returns True if the name is a built-in algorithm, or a route without a schedule."""
    try:
        _core.check_algorithm(collective, name)
    except ValueError:
        return False
    return True


def require_known(collective: str, name: str) -> None:
    """Raises ValueError unless the algorithm is a built-in or registered."""
    if registered(collective, name) is None:
        _core.check_algorithm(collective, name)
