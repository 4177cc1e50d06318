"""Base-(k+1) graphs: after finitely many rounds every rank has the mean exactly, for any number of ranks, of which each
has at most k neighbours a round.

Source: Takezawa et al., "Beyond exponential graph: communication-efficient topologies for decentralized learning via
finite-time convergence", arXiv:2305.11420. About 2 log p rounds to the base k+1; log p where p has no prime factors
above k+1.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

Round = dict[tuple[int, int], float]  # edges, by their ends in rising order, and their weights


def _cliques(groups: Sequence[Sequence[int]]) -> Round:
    """Each group's ranks take its mean."""
    return {(i, j): 1 / len(one) for one in groups for i in one for j in one if i < j}


def _hypercube(ranks: Sequence[int], radices: Sequence[int]) -> list[Round]:
    """Of ranks numbered by digits: in a round those meet that differ in one. In the end all have the mean."""
    rounds, stride = [], 1
    for radix in radices:
        starts = [at for at in range(len(ranks)) if at // stride % radix == 0]
        rounds.append(_cliques([[ranks[at + digit * stride] for digit in range(radix)] for at in starts]))
        stride *= radix
    return rounds


def _merge(into: list[Round], rounds: Sequence[Round], first: int = 0) -> None:
    """Other ranks' rounds, at the same time, from the round `first` on."""
    into += [{} for _ in range(first + len(rounds) - len(into))]
    for number, one in enumerate(rounds, first):
        into[number] |= one


def _simple(ranks: Sequence[int], k: int) -> list[Round]:
    """Parts of the ranks, whose sizes are the digits of p to the base k+1 (`count` times a `power` of it each, the
    largest first), take their own means. Then the ranks behind the first part meet one rank of each of its `count`
    pieces: with these weights every piece then has the mean of all, which it spreads among itself, and so have those
    behind, among whom this goes on."""
    base, left = k + 1, list(ranks)
    parts: list[tuple[int, int, list[int]]] = []
    while left:
        power = 1
        while power * base <= len(left):
            power *= base
        count = len(left) // power
        parts.append((count, power, left[: count * power]))
        left = left[count * power :]
    rounds: list[Round] = []
    for count, power, part in parts:
        _merge(rounds, _hypercube(part, [*_radices(power, k)[0], *([count] if count > 1 else [])]))
    first = len(rounds)
    for number, (_, power, part) in enumerate(parts[:-1], first):
        behind = [rank for _, _, other in parts[number - first + 1 :] for rank in other]
        pieces = [part[at : at + power] for at in range(0, len(part), power)]
        weight = power / (len(part) + len(behind))
        meet = [(piece[at], rank) for piece in pieces for at, rank in enumerate(behind)]
        _merge(rounds, [dict.fromkeys(meet, weight)], number)
        for piece in pieces:
            _merge(rounds, _hypercube(piece, _radices(power, k)[0]), number + 1)
    return rounds


def _radices(size: int, k: int) -> tuple[list[int], int]:
    """Factors of it of at most k+1, the largest first, and what remains of it."""
    radices = []
    for factor in range(k + 1, 1, -1):
        while size % factor == 0:
            radices.append(factor)
            size //= factor
    return radices, size


@functools.lru_cache(maxsize=64)
def base_rounds(size: int, k: int = 1) -> list[Round]:
    """Of ranks 0 to size-1: the shorter of the graph of all, and that of groups which a hypercube then joins."""
    radices, rest = _radices(size, k)
    together = _simple(range(size), k)
    apart: list[Round] = []
    for start in range(0, size, rest):
        _merge(apart, _simple(range(start, start + rest), k))
    across = [_hypercube(range(start, size, rest), radices) for start in range(rest)]
    first = len(apart)
    for one in across:
        _merge(apart, one, first)
    return min(together, apart, key=len)
