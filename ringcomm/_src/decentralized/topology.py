"""Topologies for gossip: graphs of neighbours, and the weights of a round as a matrix.

Row i of a round's matrix W gives the new weights of rank i: x_i <- sum over j of W[i, j] x_j.
If rows sum to 1, a consensus of all ranks is preserved; if columns do too, the mean is preserved.
The spectral gap of a period's product gives the speed of convergence.
In each period the distance between ranks shrinks at least by the factor 1 - gap.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Neighbours = Callable[[int, int, int], Iterable[int]]


@dataclass(frozen=True)
class Topology:
    """A graph of neighbours that may change from round to round.

    ``neighbours(rank, size, round)``: the ranks that a rank receives from in that round, without
    itself. ``period(size)``: number of rounds after which the graph repeats.
    """

    name: str
    neighbours: Neighbours
    period: Callable[[int], int]
    summary: str = ""

    def hears(self, rank: int, size: int, number: int) -> list[int]:
        """Returns the ranks that ``rank`` receives from, in rising order. Raises ValueError for ranks out of range."""
        found = sorted(set(self.neighbours(rank, size, number % self.period(size))) - {rank})
        if any(not 0 <= one < size for one in found):
            raise ValueError(f"topology {self.name!r}: rank {rank} of {size} hears {found}")
        return found

    def tells(self, rank: int, size: int, number: int) -> list[int]:
        """Returns the ranks that receive from this rank."""
        return [one for one in range(size) if rank in self.hears(one, size, number)]

    def matrix(self, size: int, number: int = 0) -> Matrix:
        """Returns the weights of a round.

        If all ranks have the same number of sources and destinations, all weights are 1/(1 +
        neighbours). Otherwise, in a graph whose edges go both ways, they are the Metropolis weights
        1/(1 + the larger number of neighbours). A rank's own weight is the remainder, so rows and
        columns sum to 1. Source: Xiao and Boyd, Systems and Control Letters 53 (2004).

        Raises:
            ValueError: neither condition holds, so these weights would not preserve the mean.
        """
        hears = [set(self.hears(rank, size, number)) for rank in range(size)]
        degrees = [len(one) for one in hears]
        told = [sum(rank in one for one in hears) for rank in range(size)]
        weights = np.zeros((size, size))
        both_ways = all(i in hears[j] for i in range(size) for j in hears[i])
        if not both_ways and (len(set(degrees)) > 1 or degrees != told):
            raise ValueError(
                f"topology {self.name!r} of {size} ranks: edges go one way and ranks have different numbers of them: "
                "their weights would not keep the mean. Let ranks hear each other, or each hear and tell equally many"
            )
        for i in range(size):
            for j in hears[i]:
                weights[i, j] = 1 / (1 + max(degrees[i], degrees[j]))
            weights[i, i] = 1 - weights[i].sum()
        return weights


@dataclass(frozen=True)
class Proof:
    """Properties of a period's matrices, each of which is doubly stochastic."""

    exact: bool  # after a period every rank has the mean
    gap: float  # 1 - the second largest singular value of the period's product

    def __str__(self) -> str:
        exactly = ", a period gives the mean exactly" if self.exact else ""
        return f"doubly stochastic; spectral gap of a period {self.gap:.4g}{exactly}"


def prove(matrices: list[Matrix]) -> Proof:
    """Computes the product of a period's matrices, and its distance from the mean."""
    size = len(matrices[0])
    product = functools.reduce(lambda done, one: one @ done, matrices, np.eye(size))
    apart = product - np.full((size, size), 1 / size)
    second = float(np.linalg.svd(apart, compute_uv=False)[0]) if size > 1 else 0.0
    return Proof(bool(np.abs(apart).max(initial=0) < 1e-9), 1 - second)


def _log(size: int) -> int:
    return max(1, math.ceil(math.log2(size))) if size > 1 else 1


def _grid(size: int) -> int:
    """Returns the number of columns of the most square grid of ``size`` ranks."""
    return size // max(rows for rows in range(1, math.isqrt(size) + 1) if size % rows == 0)


def _torus(rank: int, size: int, number: int) -> list[int]:
    columns = _grid(size)
    rows, (row, column) = size // columns, divmod(rank, columns)
    beside = [row * columns + (column + step) % columns for step in (-1, 1)]
    return beside + [(row + step) % rows * columns + column for step in (-1, 1)]


def _groups(rank: int, size: int, number: int, group: int) -> list[int]:
    """Returns the ranks with numbers that differ from this rank's in one digit to the base `group`."""
    stride = group**number
    first = rank - rank // stride % group * stride
    return list(range(first, min(first + group * stride, size), stride))


def _square(size: int) -> int:
    return max(2, math.isqrt(max(size, 1) - 1) + 1)


def groups(group: int | None = None) -> Topology:
    """Creates the topology of groups that average in turn along each digit of the ranks' numbers (a butterfly).

    In round i, the numbers of a group's ranks to the base ``group`` differ in digit i only. A
    period gives the mean exactly if the number of ranks is a power of ``group``.

    Args:
        group: ranks in a group; None: the square root of the number of ranks, rounded up.

    Raises:
        ValueError: the group has fewer than two ranks.
    """
    if group is not None and group < 2:
        raise ValueError(f"group={group}: at least two ranks")
    base = lambda size: group or _square(size)  # noqa: E731

    def period(size: int) -> int:
        rounds, reach = 1, base(size)
        while reach < size:
            rounds, reach = rounds + 1, reach * base(size)
        return rounds

    neighbours = lambda rank, size, number: _groups(rank, size, number, base(size))  # noqa: E731
    of = "about the root of their number" if group is None else str(group)
    return Topology("groups", neighbours, period, f"groups of {of}, crosswise in turn")


def _always(size: int) -> int:
    return 1


_known: dict[str, Topology] = {}


def register_topology(
    name: str, neighbours: Neighbours, period: int | Callable[[int], int] = 1, summary: str = ""
) -> Topology:
    """Registers a topology by name. Every rank must register the same topology.

    Args:
        name: a name that no built-in topology has.
        neighbours: ``neighbours(rank, size, round)``: ranks that a rank receives from in that
            round.
        period: rounds after which the graph repeats, or a function of the size.

    Raises:
        ValueError: a built-in topology has the name.
    """
    if name in BUILT_IN:
        raise ValueError(f"topology {name!r} is built in")
    made = Topology(name, neighbours, period if callable(period) else lambda size: int(period), summary)
    _known[name] = made
    return made


def topology(given: str | Topology) -> Topology:
    """Returns the topology of this name. Raises ValueError if there is none."""
    if isinstance(given, Topology):
        return given
    if given not in _known:
        raise ValueError(f"topology={given!r}: there are {', '.join(_known)}; register_topology() makes others")
    return _known[given]


def topologies() -> list[Topology]:
    return list(_known.values())


for _name, _neighbours, _period, _summary in (
    ("ring", lambda r, p, t: [(r - 1) % p, (r + 1) % p], _always, "the two beside it"),
    ("exponential", lambda r, p, t: [(r - 2**k) % p for k in range(_log(p))], _always, "those 1, 2, 4, ... before it"),
    (
        "one_peer_exponential",
        lambda r, p, t: [(r - 2**t) % p],
        _log,
        "one a round, 1, 2, 4, ... before it: the mean exactly after log2 p rounds of a power of two",
    ),
    (
        "hypercube",
        lambda r, p, t: [r ^ (1 << t)] if r ^ (1 << t) < p else [],
        _log,
        "a pair a round, across each dimension: the mean exactly after log2 p rounds of a power of two",
    ),
    ("torus", _torus, _always, "the four beside it in the most square grid"),
    ("star", lambda r, p, t: range(1, p) if r == 0 else [0], _always, "rank 0 and everybody"),
    ("complete", lambda r, p, t: range(p), _always, "everybody: the mean in each round"),
):
    _known[_name] = Topology(_name, _neighbours, _period, _summary)
_known["groups"] = groups()
BUILT_IN = tuple(_known)
