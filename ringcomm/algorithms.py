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

import contextlib
import dataclasses
import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ringcomm import _core
from ringcomm.errors import MismatchError

COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")  # those without a root
LONGEST_NAME = 15  # bytes
_LATE = 1 << 30  # "lowest rank" of a block that holds nothing yet


class Move(NamedTuple):
    """One step. ``incoming_first`` (reduce, combine): the operand order; None lets ringcomm choose it."""

    kind: str
    peer: int
    block: int
    source: int = -1
    incoming_first: bool | None = None


Round = list[Move]


def send(peer: int, block: int) -> Move:
    """Send ``block`` to ``peer``."""
    return Move("send", peer, block)


def receive(peer: int, block: int) -> Move:
    """Receive ``block`` from ``peer``, replacing it."""
    return Move("receive", peer, block)


def reduce(peer: int, block: int, incoming_first: bool | None = None) -> Move:
    """Receive a part from ``peer`` and reduce it into ``block``: ``block = block op part``, or ``part op block`` if
    ``incoming_first``.

    Left None, the part that holds the lowest rank's contribution comes first, so that all ranks get the same bits.
    """
    return Move("reduce", peer, block, -1, incoming_first)


def combine(source: int, block: int, incoming_first: bool | None = None) -> Move:
    """Reduce block ``source`` into ``block``, both of this rank."""
    return Move("combine", -1, block, source, incoming_first)


def copy(source: int, block: int) -> Move:
    """Copy block ``source`` to ``block``, both of this rank."""
    return Move("copy", -1, block, source)


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
            made = [
                _core.Schedule(self.collective, self.name, one.rank, one.size, 0, one.blocks, one.temps, one.rounds)
                for one in given
            ]
        else:
            rounds = [_rounds(one, rank, self.name) for rank, one in enumerate(given)]
            blocks = self._blocks(size, rounds)
            temps = list(self.temps(size) if callable(self.temps) else self.temps)
            ordered = _ordered(self.collective, rounds, blocks, size)
            made = [
                _core.Schedule(self.collective, self.name, rank, size, 0, blocks, temps, _as_steps(ordered[rank]))
                for rank in range(size)
            ]
        why = _core.prove(made)
        if why is not None:
            raise ValueError(f"algorithm {self.name!r} is no {self.collective} on {size} ranks: {why}")
        return made

    def _blocks(self, size: int, rounds: list[list[Round]]) -> int:
        fixed = {"allgather": size, "reducescatter": size, "alltoall": 2 * size, "barrier": 1}
        if self.collective in fixed:
            return fixed[self.collective]
        if self.blocks is not None:
            return self.blocks(size) if callable(self.blocks) else self.blocks
        return 1 + max((max(step.block, step.source) for rank in rounds for one in rank for step in one), default=0)


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


class OwnAlgorithms:
    """The registered algorithms that a communicator's calls, and named operations beside them, may run: proved for
    their number of ranks, and the same on all of them."""

    def __init__(self) -> None:
        self.table = _core.OwnAlgorithms()
        self._named: dict[tuple[str, str, int, int], tuple[Algorithm, str]] = {}

    def agree(
        self, collective: str, name: str, rank: int | None, size: int, exchange: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        """Proves an algorithm for groups of `size`, of which this process is `rank` (None: in none), and compares it
        between ranks. Collective: `exchange` gives every rank's 16 bytes.

        Raises, on every rank: MismatchError, or why it cannot run.
        """
        algorithm, error, schedules = registered(collective, name), None, []
        mine = b"unregistered".ljust(16)
        if algorithm is not None:
            try:
                schedules = algorithm.schedules(size)
                mine = digest(schedules)
            except Exception as problem:
                error, mine = problem, b"wrong".ljust(16)
        digests = exchange(mine)
        others = tuple(r for r, one in enumerate(digests) if bytes(one) != bytes(digests[0]))
        if others:
            raise MismatchError(
                f"{collective} algorithm {name!r} differs between ranks: that of rank{'s' * (len(others) > 1)} "
                f"{', '.join(map(str, others))} is not rank 0's; register the same on all ranks",
                others,
            )
        if error is not None:
            raise error
        if algorithm is None:
            _core.check_algorithm(collective, name)  # says what is known
        if rank is not None:
            self.table.add(name, schedules[rank])

    def agree_on_default(
        self, name: str, rank: int | None, size: int, exchange: Callable[[bytes], Sequence[bytes]]
    ) -> None:
        """The same of the option `algorithm`, all ranks' alike: built in, or registered before this."""
        try:
            if is_builtin("allreduce", name):
                _core.check_algorithm("allreduce", name, size if size > 1 else 0)
            else:
                self.agree("allreduce", name, rank, size, exchange)
        except ValueError as error:
            raise ValueError(f"option algorithm (RINGCOMM_ALGORITHM): {error}") from error

    def named(self, collective: str, name: str, rank: int, size: int) -> str:
        """What a named operation calls it, so that ranks which register different ones notice. Not collective.
        Raises ValueError: there is none of this name, or it is wrong."""
        algorithm = registered(collective, name)
        if algorithm is None:
            _core.check_algorithm(collective, name, size)
            return name
        known = self._named.get((collective, name, rank, size))
        if known is None or known[0] is not algorithm:
            schedules = algorithm.schedules(size)
            known = algorithm, f"{name}#{digest(schedules).hex()[:16]}"
            self.table.add(known[1], schedules[rank])
            self._named[collective, name, rank, size] = known
        return known[1]

    def prepare(self, rank: int, size: int) -> None:
        """Before this rank takes part in what others ask for."""
        for collective, name in list(_registered):
            with contextlib.suppress(Exception):  # a wrong one runs nowhere
                self.named(collective, name, rank, size)


def digest(schedules: Sequence[_core.Schedule]) -> bytes:
    """16 bytes, equal only for equal schedules of all ranks."""
    text = repr(
        [
            (one.collective, one.blocks, one.temps, [[tuple(step) for step in row] for row in one.rounds])
            for one in schedules
        ]
    )
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


# ---- from what the user wrote to steps -------------------------------------------------------------------------------
def _rounds(given: Any, rank: int, name: str) -> list[Round]:
    rounds = [
        [Move(*one)] if isinstance(one, tuple) and one and isinstance(one[0], str) else [Move(*step) for step in one]
        for one in given
    ]
    for step in (step for one in rounds for step in one):
        if step.kind not in ("send", "receive", "reduce", "combine", "copy"):
            raise ValueError(f"algorithm {name!r}, rank {rank}: unknown step {step.kind!r}")
    return rounds


def _as_steps(rounds: list[Round]) -> list[list[_core.Step]]:
    return [[_core.Step(m.kind, m.peer, m.block, m.source, bool(m.incoming_first)) for m in one] for one in rounds]


def _ordered(collective: str, rounds: list[list[Round]], blocks: int, size: int) -> list[list[Round]]:
    """The same with every ``incoming_first`` decided, by following which ranks' contributions a block holds.

    Ranks run their rounds as messages allow, as the executor does. Where that gets stuck or a message is too short, the
    rest is decided arbitrarily: the prover then says what is wrong.
    """
    # Per rank: block -> bits of the ranks whose contributions it holds.
    held = [defaultdict(int, _initial(collective, rank, blocks, size)) for rank in range(size)]
    wires: dict[tuple[int, int], deque[list[int]]] = defaultdict(deque)
    out: list[list[Round]] = [[] for _ in range(size)]
    begun = [-1] * size
    moved = True
    while moved:
        moved = False
        for rank in range(size):
            at = len(out[rank])
            if at == len(rounds[rank]):
                continue
            steps = rounds[rank][at]
            if begun[rank] < at:
                _post(rank, steps, held[rank], wires)
                begun[rank] = at
                moved = True
            sources = {step.peer for step in steps if step.kind in ("receive", "reduce")}
            if all(wires[source, rank] for source in sources):
                taken = {source: deque(wires[source, rank].popleft()) for source in sources}
                out[rank].append([_decide(step, held[rank], taken) for step in steps])
                moved = True
    for rank in range(size):
        out[rank] += rounds[rank][len(out[rank]) :]
    return out


def _initial(collective: str, rank: int, blocks: int, size: int) -> dict[int, int]:
    if collective == "allgather":
        return {rank: 1 << rank}
    return dict.fromkeys(range(size if collective == "alltoall" else blocks), 1 << rank)


def _post(rank: int, steps: Round, held: dict[int, int], wires: dict[tuple[int, int], deque[list[int]]]) -> None:
    messages: dict[int, list[int]] = defaultdict(list)
    for step in steps:
        if step.kind == "send":
            messages[step.peer].append(held[step.block])
    for peer, message in messages.items():
        wires[rank, peer].append(message)


def _decide(step: Move, held: dict[int, int], taken: dict[int, deque[int]]) -> Move:
    if step.kind == "send":
        return step._replace(incoming_first=False)
    if step.kind in ("combine", "copy"):
        incoming = held[step.source]
    else:
        incoming = taken[step.peer].popleft() if taken[step.peer] else 0
    if step.kind in ("receive", "copy"):
        held[step.block] = incoming
        return step._replace(incoming_first=False)
    first = _lowest(incoming) < _lowest(held[step.block]) if step.incoming_first is None else bool(step.incoming_first)
    held[step.block] |= incoming
    return step._replace(incoming_first=first)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() if bits else _LATE
