"""Counts calls, messages and bytes of this rank, and shows them as tables.

Each communicator, and the engine, has a ledger of counters that the core increments.
:func:`stats` adds up those of the process; it is ``ringcomm.stats``.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ringcomm._src.algorithms import registry as algorithms
from ringcomm._src.base.arguments import nearest
from ringcomm._src.core import _core

NS = 1e-9


@dataclasses.dataclass(frozen=True)
class OperationStats:
    """Numbers of calls, messages, bytes and seconds of one operation by one algorithm, on this rank.

    Bytes and messages are those that this rank passed to MPI or got from it. ``memory_bytes`` are the bytes that it
    read from, or wrote to, memory that the ranks of its host share. A copy counts once, on the rank that makes it.

    ``bytes_saved`` is the number of bytes that encoding (``wire=``, ``compression=``) saved. It is negative if the
    messages are so short that encoding makes them longer.

    ``seconds_waited`` is the time in which callers only waited. ``seconds_lasted`` is the time from each submission to
    its completion. ``seconds_encoding`` is the time in which the core encoded and decoded. All three are 0.0 without
    ``RINGCOMM_STATS=1``.
    """

    operation: str
    algorithm: str
    calls: int = 0
    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    memory_bytes: int = 0
    bytes_saved: int = 0
    seconds_encoding: float = 0.0
    seconds_waited: float = 0.0
    seconds_lasted: float = 0.0

    @property
    def hidden(self) -> float | None:
        """Fraction (0.0 to 1.0) of the time from submission to completion in which the caller did not wait; None
        without times."""
        if self.seconds_lasted <= 0:
            return None
        return max(0.0, 1 - self.seconds_waited / self.seconds_lasted)

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields, and ``hidden``."""
        return {**dataclasses.asdict(self), "hidden": self.hidden}


NUMBERS = tuple(field.name for field in dataclasses.fields(OperationStats))[2:]  # in the core's order
COUNTS, TIMES = NUMBERS[:-3], NUMBERS[-3:]


@dataclasses.dataclass(frozen=True)
class Stats:
    """Statistics of this rank, by operation and algorithm. ``str()`` is a table.

    ``operation`` is one of:

    - the name of a collective (gather and scatter are ``"alltoall"``), ``"send"`` or ``"recv"``;
    - ``"training step"``: the time of complete steps of optimizers (their bytes are in ``"allreduce"``);
    - ``"comparison"``: the consistency check of ordered calls, before data moves;
    - ``"agreement"``: the agreement of ranks on named operations;
    - ``"replica check"``: comparisons of parameters, by result (``"equal"`` or ``"different"``);
    - ``"failed"``.

    ``algorithm`` is the name of the schedule that ran, ``"shared"`` (in the host's shared memory), ``"inline"`` (within
    the consistency check) or ``"local"`` (one rank). For messages it is ``"memory"``, ``"network"`` or ``"self"``.
    """

    operations: tuple[OperationStats, ...] = ()

    def __iter__(self) -> Iterator[OperationStats]:
        return iter(self.operations)

    def of(self, operation: str, algorithm: str | None = None) -> OperationStats:
        """Returns the numbers of one operation by one algorithm, or by all (None). They are 0 if it was not called.

        The name of a family returns the sum of its algorithms: "butterfly" is "butterfly_doubling" and
        "butterfly_halving", "tree" is "tree:0", "tree:1" and so on.

        Raises:
            ValueError: there is no such operation or algorithm.
        """
        _require_name("operation", operation, {*_OPERATIONS, *(one.operation for one in self)})
        chosen = [one for one in self if one.operation == operation]
        if algorithm is not None:
            chosen = [one for one in chosen if _stands_for(algorithm, one.algorithm)]
            if not chosen and not algorithms.is_builtin(operation, algorithm):
                _require_name("algorithm", algorithm, _algorithm_names() | {one.algorithm for one in self})
        return _sum(chosen, operation, algorithm or "")

    @property
    def total(self) -> OperationStats:
        """Sum of all operations."""
        return _sum(self, "all", "")

    def as_dict(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Returns a dict from (operation, algorithm) to the numbers."""
        return {(one.operation, one.algorithm): one.as_dict() for one in self}

    def __str__(self) -> str:
        head = ("operation", "algorithm", *(name.replace("_", " ") for name in COUNTS), "seconds waited", "hidden")
        rows = [head, *(_row(one) for one in (*self, self.total))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [[*(c.ljust(w) for c, w in zip(r[:2], widths[:2], strict=True)), *_right(r, widths)] for r in rows]
        return "\n".join("  ".join(line).rstrip() for line in lines)

    def __add__(self, other: Stats) -> Stats:
        parts: dict[tuple[str, str], list[OperationStats]] = {}
        for one in (*self, *other):
            parts.setdefault((one.operation, one.algorithm), []).append(one)
        sums = (_sum(some, *key) for key, some in sorted(parts.items()))
        return Stats(tuple(one for one in sums if any(getattr(one, name) for name in COUNTS)))

    def __sub__(self, earlier: Stats) -> Stats:
        negated = (dataclasses.replace(one, **{name: -getattr(one, name) for name in NUMBERS}) for one in earlier)
        return self + Stats(tuple(negated))


_OTHERS = ("send", "recv", "training step", "comparison", "agreement", "replica check", "failed")
_OPERATIONS = (*_core.COLLECTIVES, *_OTHERS)
_WAYS = ("shared", "inline", "local", "memory", "network", "self", "equal", "different")  # names other than schedules


def _algorithm_names() -> set[str]:
    registered = (one.name for one in algorithms.all_registered())
    return {*_WAYS, "butterfly", *(one.name for one in _core.algorithms()), *registered}


def _stands_for(name: str, algorithm: str) -> bool:
    family = name.rpartition(":")[2] == "butterfly" and algorithm.startswith(f"{name}_")
    return name == algorithm or family or algorithm.startswith(f"{name}:")


def _require_name(what: str, name: str, known: set[str]) -> None:
    if name not in known:
        raise ValueError(
            f"stats().of: there is no {what} {name!r}{nearest(name, known)} (known: {', '.join(sorted(known))})"
        )


def _right(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]


def _row(one: OperationStats) -> tuple[str, ...]:
    counts = [f"{getattr(one, name):,}" for name in COUNTS]
    timed = one.hidden is not None
    times = (f"{one.seconds_waited:.3f}" if timed else "-", f"{one.hidden:.0%}" if timed else "-")
    return (one.operation, one.algorithm or "-", *counts, *times)


def _sum(some: Iterable[OperationStats], operation: str, algorithm: str) -> OperationStats:
    listed = list(some)
    return OperationStats(operation, algorithm, **{name: sum(getattr(one, name) for one in listed) for name in NUMBERS})


class Ledger:
    """The counters of a communicator, or of the engine. Threads that count at the same time use separate accounts."""

    def __init__(self, number: int, timed: bool) -> None:
        self.accounts = [_core.Account(timed) for _ in range(number)]
        self._zero = Stats()
        with _lock:
            _open.append(self)

    def all(self) -> Stats:
        """Returns the statistics since this ledger was made."""
        found = Stats()
        for account in self.accounts:
            found += Stats(tuple(_read(*entry) for entry in account.entries()))
        return found

    def stats(self, reset: bool) -> Stats:
        found, before = self.all(), self._zero
        if reset:
            self._zero = found
        return found - before

    def end(self) -> None:
        """Stops counting, and adds the counts to the process's sum."""
        global _ended
        with _lock:
            if self in _open:
                _open.remove(self)
                _ended += self.all()


def _read(operation: str, algorithm: str, numbers: list[int]) -> OperationStats:
    values: dict[str, Any] = dict(zip(NUMBERS, numbers, strict=True))
    return OperationStats(operation, algorithm, **(values | {name: values[name] * NS for name in TIMES}))


_lock = threading.Lock()
_open: list[Ledger] = []
_ended = Stats()
_zero = Stats()
_wanted = False


def stats(reset: bool = False) -> Stats:
    """Returns the statistics of this process: all its communicators, also if closed, and its named operations.

    Not collective.

    Args:
        reset: count from zero from now on. Other counts, such as those of :meth:`Communicator.stats`, continue.

    With ``RINGCOMM_STATS=1`` the statistics include times, and rank 0 prints its table when it ends.
    """
    global _zero
    with _lock:
        found = sum((ledger.all() for ledger in _open), start=_ended)
        before = _zero
        if reset:
            _zero = found
    return found - before


def count(operation: str, algorithm: str) -> None:
    """Counts one call that the core does not count."""
    global _ended
    with _lock:
        _ended += Stats((OperationStats(operation, algorithm, calls=1),))


def report_at_end() -> None:
    """Requests the table at the end of this process, if it is rank 0."""
    global _wanted
    _wanted = True


def report(rank: int) -> None:
    """Prints the table of this process if it is requested and `rank`, its rank in the job, is 0."""
    if _wanted and rank == 0:
        sys.stderr.write(f"ringcomm: what rank {rank} has moved\n{stats()}\n")
        sys.stderr.flush()
