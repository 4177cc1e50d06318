"""Exercises with a schedule as answer: a function of (rank, size) that returns rounds of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil, floor, inf, log2
from typing import Any, NamedTuple

from ringcomm._src.algorithms.registry import Algorithm
from ringcomm._src.core import _core
from ringcomm._src.teaching.verdict import schedules_of

NBYTES = 1 << 24  # large, so that uneven blocks change the volume by less than TOLERANCE
TOLERANCE = 1e-3
UNITS = _core.Network(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)  # only counts are read from the price

Schedules = Sequence[_core.Schedule]


class Limits(NamedTuple):
    """Requirements on a proved schedule: most rounds, most data sent by a rank (in buffers)."""

    sizes: Sequence[int]  # numbers of ranks for which the schedule must work
    rounds: Callable[[int], float]
    volume: Callable[[int], float] = lambda _: inf
    further: Callable[[Schedules], str] = lambda _: ""  # returns the reason for a refusal, or ""


def check_schedule(answer: Any, limits: Limits) -> tuple[str, str]:
    """Returns the reason why the answer is wrong ("" if it is correct), and its cost."""
    if not callable(answer):
        return "the answer must be a function of (rank, size) that returns a list of rounds", ""
    cost = ""
    for size in limits.sizes:
        schedules = schedules_of(answer, size)  # raises ValueError if the proof fails
        price = _core.price(schedules, NBYTES, UNITS)
        volume = price.bytes / NBYTES
        if price.rounds > limits.rounds(size):
            return f"on {size} ranks it has {price.rounds} rounds; at most {limits.rounds(size):g} are allowed", ""
        if volume > limits.volume(size) * (1 + TOLERANCE):
            allowed = limits.volume(size)
            return f"on {size} ranks a rank sends {volume:.4g} S; at most {allowed:.4g} S are allowed", ""
        if trouble := limits.further(schedules):
            return f"on {size} ranks {trouble}", ""
        cost = (
            f"on {size} ranks it has {price.rounds} rounds, and each rank sends at most {price.messages} messages "
            f"and {volume:.4g} S"
        )
    return "", f"Proved on {', '.join(map(str, limits.sizes))} ranks; {cost}"


def rooted_at_3(schedules: Schedules) -> str:
    sends = sum(step.kind == "send" for schedule in schedules for steps in schedule.rounds for step in steps)
    if sends != 2 * (len(schedules) - 1):
        return f"the ranks send {sends} blocks; a tree sends 2(p-1) = {2 * (len(schedules) - 1)}"
    up = ceil(log2(len(schedules)))
    if _core.follow(schedules)[3][up] != [1.0]:
        return f"rank 3, the root, does not hold the complete sum in one block after {up} rounds"
    return ""


def neighbours_only(schedules: Schedules) -> str:
    for schedule in schedules:
        rank, size = schedule.rank, schedule.size
        for step in (step for steps in schedule.rounds for step in steps if step.kind == "send"):
            if (step.peer - rank) % size not in (1, size - 1):
                return f"rank {rank} sends to rank {step.peer}; in a ring a rank sends only to its neighbours"
    return ""


def check_deadlock(answer: Any) -> str:
    """Returns the reason why the schedule does not deadlock on 4 ranks, or "" if it does."""
    rounds = [answer(rank, 4) for rank in range(4)]
    ends: Counter[tuple[int, int]] = Counter()
    for rank, own in enumerate(rounds):
        for steps in own:
            for step in steps:
                if step.kind in ("send", "receive", "reduce"):
                    sends = step.kind == "send"
                    ends[(rank, step.peer) if sends else (step.peer, rank)] += 1 if sends else -1
    if not ends or any(ends.values()):
        return "every send needs its receive: here the numbers of sends and receives of two ranks differ"
    try:
        Algorithm("answer", "allreduce", lambda rank, _: rounds[rank], None, ()).schedules(4)
    except ValueError as error:
        return "" if "waits forever" in str(error) else f"the proof reports no deadlock, but: {error}"
    return "the schedule is proved: it has no deadlock"


def _halved(size: int) -> float:
    return 2 * (size - 1) / size


POWERS = (2, 4, 8, 16)
ANY = tuple(range(2, 10))

SCHEDULES = {
    "ring": (
        "Write the ring: 2(p-1) rounds, each rank sends 2(p-1)/p of its buffer S.",
        Limits(ANY, lambda p: 2 * (p - 1), _halved, neighbours_only),
    ),
    "butterfly": (
        "Write recursive doubling for p = 2, 4, 8, 16: log2(p) rounds.",
        Limits(POWERS, log2),
    ),
    "halving": (
        "Write recursive halving and doubling for p = 2, 4, 8, 16: 2 log2(p) rounds, 2(p-1)/p S.",
        Limits(POWERS, lambda p: 2 * log2(p), _halved),
    ),
    "fold": (
        "Extend the butterfly to every p from 2 to 9, with at most two further rounds.",
        Limits(ANY, lambda p: floor(log2(p)) + 2 * (p & (p - 1) != 0)),
    ),
    "tree_root_3": (
        "Write the binomial tree with root 3 for p = 4, 5, 8: 2 ceil(log2(p)) rounds, 2(p-1) messages.",
        Limits((4, 5, 8), lambda p: 2 * ceil(log2(p)), further=rooted_at_3),
    ),
    "two_rounds": (
        "Write an all-reduce of two rounds in which each rank sends only 2(p-1)/p S.",
        Limits(ANY, lambda _: 2, _halved),
    ),
}
