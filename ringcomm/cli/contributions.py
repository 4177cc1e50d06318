"""Runs the schedules of all ranks on symbols, to show after each round what every block holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ringcomm._core import Schedule, Step

Piece = tuple[int, int]  # (rank, block) that a value came from
Value = frozenset[Piece]
NOTHING: Value = frozenset()
RECEIVING = ("receive", "reduce")
REDUCING = ("allreduce", "reduce", "reducescatter", "barrier")


@dataclass(frozen=True)
class Message:
    """All that one round of `sender` sends to `receiver`; taken in round `taken` of the receiver."""

    sender: int
    receiver: int
    sent: int
    taken: int
    sent_blocks: tuple[int, ...]
    taken_blocks: tuple[int, ...]
    reduces: bool


@dataclass
class History:
    """`states[rank][round][block]`: what the block holds when the round begins; one more entry for the end."""

    schedules: Sequence[Schedule]
    rounds: int
    states: list[list[list[Value]]]
    messages: list[Message]

    def completeness(self, rank: int, moment: int, block: int) -> float:
        """0 to 1: how much of what the collective wants in this block is there.

        Scratch: how much of a whole sum; a half if it holds anything of a collective that sums nothing.
        """
        schedule, value = self.schedules[rank], self.states[rank][moment][block]
        if block >= schedule.blocks:
            return len(value) / schedule.size if schedule.collective in REDUCING else 0.5 if value else 0.0
        wanted = _wanted(schedule, block)
        return len(value & wanted) / len(wanted)


def _initial(schedule: Schedule, block: int) -> Value:
    rank = schedule.rank
    if block >= schedule.blocks:
        return NOTHING
    if schedule.collective == "broadcast":
        return frozenset({(rank, block)}) if rank == schedule.root else NOTHING
    if schedule.collective == "allgather":
        return frozenset({(rank, block)}) if block == rank else NOTHING
    if schedule.collective == "alltoall":
        return frozenset({(rank, block)}) if block < schedule.size else NOTHING
    return frozenset({(rank, block)})


def _wanted(schedule: Schedule, block: int) -> Value:
    everybody = frozenset((rank, block) for rank in range(schedule.size))
    if schedule.collective == "broadcast":
        return frozenset({(schedule.root, block)})
    if schedule.collective == "allgather":
        return frozenset({(block, block)})
    if schedule.collective == "alltoall":
        size, rank = schedule.size, schedule.rank
        return frozenset({(rank, block)}) if block < size else frozenset({(block - size, rank)})
    return everybody


def _by_peer(steps: Sequence[Step], kinds: tuple[str, ...]) -> dict[int, list[Step]]:
    grouped: dict[int, list[Step]] = {}
    for step in steps:
        if step.kind in kinds:
            grouped.setdefault(step.peer, []).append(step)
    return grouped


class _Run:
    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self.schedules = schedules
        self.rounds = max((len(s.rounds) for s in schedules), default=0)
        self.now = [[_initial(s, b) for b in range(s.blocks + len(s.temps))] for s in schedules]
        self.states = [[list(blocks)] for blocks in self.now]
        self.wires: dict[tuple[int, int], deque[tuple[int, list[int], list[Value]]]] = {}
        self.messages: list[Message] = []
        self.posted = [False] * len(schedules)

    def advance(self, rank: int) -> bool:
        """Sends of this rank's round, once; then its writes, if all messages are there. True if anything happened."""
        moment = len(self.states[rank]) - 1
        if moment == self.rounds:
            return False
        rounds = self.schedules[rank].rounds
        steps = rounds[moment] if moment < len(rounds) else []
        moved = not self.posted[rank]
        if moved:
            for peer, sends in _by_peer(steps, ("send",)).items():
                values = [self.now[rank][s.block] for s in sends]
                self.wires.setdefault((rank, peer), deque()).append((moment, [s.block for s in sends], values))
            self.posted[rank] = True
        takes = _by_peer(steps, RECEIVING)
        if not all(self.wires.get((peer, rank)) for peer in takes):
            return moved
        self._write(rank, moment, steps, takes)
        self.states[rank].append(list(self.now[rank]))
        self.posted[rank] = False
        return True

    def _write(self, rank: int, moment: int, steps: Sequence[Step], takes: dict[int, list[Step]]) -> None:
        arrived: dict[int, deque[Value]] = {}
        for peer, taken in takes.items():
            sent, blocks, values = self.wires[peer, rank].popleft()
            if len(values) != len(taken):
                raise ValueError(
                    f"rank {rank}, round {moment}: takes {len(taken)} blocks of {len(values)} from rank {peer}"
                )
            arrived[peer] = deque(values)
            self.messages.append(
                Message(
                    peer,
                    rank,
                    sent,
                    moment,
                    tuple(blocks),
                    tuple(s.block for s in taken),
                    any(s.kind == "reduce" for s in taken),
                )
            )
        blocks_now = self.now[rank]
        for step in steps:
            if step.kind == "receive":
                blocks_now[step.block] = arrived[step.peer].popleft()
            elif step.kind == "reduce":
                blocks_now[step.block] |= arrived[step.peer].popleft()
            elif step.kind == "combine":
                blocks_now[step.block] |= blocks_now[step.source]
            elif step.kind == "copy":
                blocks_now[step.block] = blocks_now[step.source]


def follow(schedules: Sequence[Schedule]) -> History:
    """The whole run. `schedules[r]` is rank r's. Raises ValueError if the ranks wait for each other for ever."""
    run = _Run(schedules)
    ranks = range(len(schedules))
    while sum(run.advance(rank) for rank in ranks):  # sum: every rank gets its turn
        pass
    stuck = [r for r in ranks if len(run.states[r]) <= run.rounds]
    if stuck:
        raise ValueError(f"ranks {stuck} wait for messages that nobody sends")
    return History(schedules, run.rounds, run.states, run.messages)
