"""Topologies for gossip: graphs of neighbours, and the weights of a round as a matrix.

Row i of a round's matrix W gives the new weights of rank i: x_i <- sum over j of W[i, j] x_j.
If rows sum to 1, a consensus of all ranks is preserved; if columns do too, the mean is preserved.
A period is the number of rounds after which the graph repeats. The spectral gap of the product of
one period's matrices gives the speed of convergence: in each period, the distance between the
ranks' weights shrinks at least by the factor 1 - gap.
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

    Parameters
    ----------
    name : str
        Name of the topology in messages.
    neighbours : Callable[[int, int, int], Iterable[int]]
        ``neighbours(rank, size, round)``: the ranks that a rank receives from in that round. The
        rank itself is ignored.
    period : Callable[[int], int]
        ``period(size)``: number of rounds after which the graph repeats.
    summary : str
        Description that ``ringcomm show`` prints.

    Examples
    --------
    >>> one_way = ringcomm.Topology("one_way", lambda r, p, t: [(r - 1) % p], lambda p: 1)
    >>> one_way.in_neighbors(rank=0, size=3, number=0), one_way.out_neighbors(rank=0, size=3, number=0)
    ([2], [1])
    >>> one_way.matrix(size=2)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    name: str
    neighbours: Neighbours
    period: Callable[[int], int]
    summary: str = ""

    def in_neighbors(self, rank: int, size: int, number: int) -> list[int]:
        """Returns the ranks that ``rank`` receives from in round ``number``, in rising order.

        Raises ValueError if one of them is not in [0, size).
        """
        found = sorted(set(self.neighbours(rank, size, number % self.period(size))) - {rank})
        if any(not 0 <= source < size for source in found):
            raise ValueError(f"topology {self.name!r}: the sources of rank {rank} of {size}, {found}, do not all exist")
        return found

    def out_neighbors(self, rank: int, size: int, number: int) -> list[int]:
        """Returns the ranks that receive from ``rank`` in round ``number``, in rising order."""
        return [other for other in range(size) if rank in self.in_neighbors(other, size, number)]

    def matrix(self, size: int, number: int = 0) -> Matrix:
        """Returns the weights of round ``number``, as an array of shape (size, size).

        If all ranks have the same number of sources and destinations, all weights are 1/(1 +
        neighbours). Otherwise, in a graph of bidirectional edges, they are the Metropolis weights
        1/(1 + the larger number of neighbours). A rank's own weight is the remainder, so rows and
        columns sum to 1. Source: Xiao and Boyd, Systems and Control Letters 53 (2004).

        Raises
        ------
        ValueError
            Neither condition holds, so these weights would not preserve the mean.
        """
        sources = [set(self.in_neighbors(rank, size, number)) for rank in range(size)]
        degrees = [len(ranks) for ranks in sources]
        out_degrees = [sum(rank in ranks for ranks in sources) for rank in range(size)]
        weights = np.zeros((size, size))
        both_ways = all(i in sources[j] for i in range(size) for j in sources[i])
        if not both_ways and (len(set(degrees)) > 1 or degrees != out_degrees):
            raise ValueError(
                f"topology {self.name!r} of {size} ranks: edges have one direction, and ranks have different numbers "
                "of them, so the weights would not preserve the mean. Make all edges bidirectional, or let all ranks "
                "receive from and send to the same number of ranks"
            )
        for i in range(size):
            for j in sources[i]:
                weights[i, j] = 1 / (1 + max(degrees[i], degrees[j]))
            weights[i, i] = 1 - weights[i].sum()
        return weights


@dataclass(frozen=True)
class Proof:
    """Properties of a period's matrices, each of which is doubly stochastic."""

    exact: bool  # after a period every rank has the mean
    gap: float  # 1 - the second largest singular value of the period's product

    def __str__(self) -> str:
        exactly = "; exact mean after a period" if self.exact else ""
        return f"doubly stochastic; spectral gap of a period {self.gap:.4g}{exactly}"


def prove(matrices: list[Matrix]) -> Proof:
    """Computes the product of a period's matrices, and its distance from the mean."""
    size = len(matrices[0])
    product = functools.reduce(lambda done, matrix: matrix @ done, matrices, np.eye(size))
    difference = product - np.full((size, size), 1 / size)
    second = float(np.linalg.svd(difference, compute_uv=False)[0]) if size > 1 else 0.0
    return Proof(bool(np.abs(difference).max(initial=0) < 1e-9), 1 - second)


def _log(size: int) -> int:
    return max(1, math.ceil(math.log2(size))) if size > 1 else 1


def _grid(size: int) -> int:
    """Returns the number of columns of the most square grid of ``size`` ranks."""
    return size // max(rows for rows in range(1, math.isqrt(size) + 1) if size % rows == 0)


def _torus(rank: int, size: int, number: int) -> list[int]:
    columns = _grid(size)
    rows, (row, column) = size // columns, divmod(rank, columns)
    same_row = [row * columns + (column + step) % columns for step in (-1, 1)]
    return same_row + [(row + step) % rows * columns + column for step in (-1, 1)]


def _groups(rank: int, size: int, number: int, group: int) -> list[int]:
    """Returns the ranks whose numbers differ from this rank's in one digit to base `group`."""
    stride = group**number
    first = rank - rank // stride % group * stride
    return list(range(first, min(first + group * stride, size), stride))


def _square(size: int) -> int:
    return max(2, math.isqrt(max(size, 1) - 1) + 1)


def groups(group: int | None = None) -> Topology:
    """Creates a butterfly: groups of ranks average along one digit of the ranks' numbers per round.

    In round i, the numbers of a group's ranks to the base ``group`` differ in digit i only.
    After one period, all ranks have the exact mean if the number of ranks is a power of ``group``.

    Parameters
    ----------
    group : int | None
        Ranks in a group; None: the square root of the number of ranks, rounded up.

    Raises
    ------
    ValueError
        The group has fewer than two ranks.
    """
    if group is not None and group < 2:
        raise ValueError(f"group={group}: must be at least 2 ranks")
    base = lambda size: group or _square(size)  # noqa: E731

    def period(size: int) -> int:
        rounds, reach = 1, base(size)
        while reach < size:
            rounds, reach = rounds + 1, reach * base(size)
        return rounds

    neighbours = lambda rank, size, number: _groups(rank, size, number, base(size))  # noqa: E731
    of = "about sqrt(p)" if group is None else str(group)
    return Topology(
        "groups", neighbours, period, f"groups of {of} ranks, by another digit of the ranks' numbers in each round"
    )


def _always(size: int) -> int:
    return 1


_known: dict[str, Topology] = {}


def register_topology(
    name: str, neighbours: Neighbours, period: int | Callable[[int], int] = 1, summary: str = ""
) -> Topology:
    """Registers a topology by name. Every rank must register the same topology.

    Parameters
    ----------
    name : str
        A name that no built-in topology has.
    neighbours : Callable[[int, int, int], Iterable[int]]
        ``neighbours(rank, size, round)``: ranks that a rank receives from in that round.
    period : int | Callable[[int], int]
        Number of rounds after which the graph repeats, or a function of the number of ranks.
    summary : str
        Description that ``ringcomm show`` prints.

    Returns
    -------
    Topology
        The new topology; a registered one of this name is replaced.

    Raises
    ------
    ValueError
        A built-in topology has the name.

    Examples
    --------
    >>> pairs = ringcomm.register_topology("xor_pairs", lambda r, p, t: [r ^ 1] if r ^ 1 < p else [])
    >>> pairs.in_neighbors(rank=0, size=4, number=0)
    [1]
    """
    if name in BUILT_IN:
        raise ValueError(f"topology {name!r} is built in: choose another name")
    made = Topology(name, neighbours, period if callable(period) else lambda size: int(period), summary)
    _known[name] = made
    return made


def topology(given: str | Topology) -> Topology:
    """Returns the topology of this name. Raises ValueError if there is none."""
    if isinstance(given, Topology):
        return given
    if given not in _known:
        raise ValueError(f"topology={given!r}: known are {', '.join(_known)}; register_topology() adds others")
    return _known[given]


def topologies() -> list[Topology]:
    return list(_known.values())


for _name, _neighbours, _period, _summary in (
    ("ring", lambda r, p, t: [(r - 1) % p, (r + 1) % p], _always, "the ranks before and after it"),
    (
        "exponential",
        lambda r, p, t: [(r - 2**k) % p for k in range(_log(p))],
        _always,
        "the ranks 1, 2, 4, ... before it",
    ),
    (
        "one_peer_exponential",
        lambda r, p, t: [(r - 2**t) % p],
        _log,
        "per round one rank, 1, 2, 4, ... before it; exact mean after log2 p rounds if p is a power of 2",
    ),
    (
        "hypercube",
        lambda r, p, t: [r ^ (1 << t)] if r ^ (1 << t) < p else [],
        _log,
        "per round one rank, across each dimension; exact mean after log2 p rounds if p is a power of 2",
    ),
    ("torus", _torus, _always, "the four adjacent ranks in the most square grid"),
    ("star", lambda r, p, t: range(1, p) if r == 0 else [0], _always, "rank 0 and each other rank"),
    ("complete", lambda r, p, t: range(p), _always, "all ranks; exact mean after each round"),
):
    _known[_name] = Topology(_name, _neighbours, _period, _summary)
_known["groups"] = groups()
BUILT_IN = tuple(_known)
