"""Counts calls, messages and bytes of this rank, and shows them as tables.

Each communicator, and the engine, has a ledger of counters that the core increments.
:func:`stats` adds up all ledgers of the process; users call it as ``ringcomm.stats``.
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
    """Numbers of calls, messages, bytes and seconds of one operation by one algorithm.

    All numbers are of this rank. Messages and bytes are those that this rank sent or received
    through MPI. ``memory_bytes`` are the bytes that it read from, or wrote to, memory that the
    ranks of its host share. A copy counts once, on the rank that makes it.

    ``bytes_saved`` is the number of bytes that encoding (``wire=``, ``compression=``) saved. It is
    negative if the messages are so short that encoding makes them longer.

    ``seconds_waited`` is the time in which callers only waited. ``seconds_lasted`` is the time from
    each submission to its completion. ``seconds_encoding`` is the time in which the core encoded
    and decoded. All three are 0.0 without ``RINGCOMM_STATS=1``.

    Examples
    --------
    >>> before = comm.stats()
    >>> y = comm.allreduce(np.ones(1000), algorithm="ring")
    >>> ring = (comm.stats() - before).of("allreduce", "ring")
    >>> ring.calls, ring.bytes_sent
    (1, 8000)
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
        """Fraction (0.0 to 1.0) of `seconds_lasted` in which the caller did not wait.

        None if the statistics contain no times.
        """
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
    - ``"training step"``: time of complete optimizer steps (their bytes are in ``"allreduce"``);
    - ``"comparison"``: the consistency check of ordered calls, before data moves;
    - ``"agreement"``: the agreement of ranks on named operations;
    - ``"replica check"``: comparisons of parameters, by result (``"equal"`` or ``"different"``);
    - ``"failed"``.

    ``algorithm`` is the name of the schedule that ran, ``"shared"`` (in the host's shared memory),
    ``"inline"`` (within the consistency check) or ``"local"`` (one rank). For messages it is
    ``"memory"``, ``"network"`` or ``"self"``.

    Examples
    --------
    >>> before = comm.stats()
    >>> y = comm.allreduce(np.ones(1000), algorithm="ring")
    >>> comm.barrier()
    >>> used = comm.stats() - before
    >>> used.of("allreduce").calls, used.of("barrier").calls
    (1, 1)
    """

    operations: tuple[OperationStats, ...] = ()

    def __iter__(self) -> Iterator[OperationStats]:
        return iter(self.operations)

    def of(self, operation: str, algorithm: str | None = None) -> OperationStats:
        """Returns the numbers of one operation; they are 0 if it was not called.

        Parameters
        ----------
        operation : str
            Name of the operation.
        algorithm : str | None
            Algorithm; None: all. The name of a family returns the sum of its algorithms:
            "butterfly" is "butterfly_doubling" and "butterfly_halving", "swing" is "bine_doubling"
            and "bine_halving", "tree" is "tree:0", "tree:1" and so on.

        Returns
        -------
        OperationStats
            The sum over the chosen algorithms.

        Raises
        ------
        ValueError
            The operation or the algorithm is unknown.
        """
        _require_name("operation", operation, {*_OPERATIONS, *(entry.operation for entry in self)})
        chosen = [entry for entry in self if entry.operation == operation]
        if algorithm is not None:
            chosen = [entry for entry in chosen if _matches(algorithm, entry.algorithm)]
            if not chosen and not algorithms.is_builtin(operation, algorithm):
                _require_name("algorithm", algorithm, _algorithm_names() | {entry.algorithm for entry in self})
        return _sum(chosen, operation, algorithm or "")

    @property
    def total(self) -> OperationStats:
        """Sum of all operations."""
        return _sum(self, "all", "")

    def as_dict(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Returns a dict from (operation, algorithm) to the numbers."""
        return {(entry.operation, entry.algorithm): entry.as_dict() for entry in self}

    def __str__(self) -> str:
        head = ("operation", "algorithm", *(name.replace("_", " ") for name in COUNTS), "seconds waited", "hidden")
        rows = [head, *(_row(entry) for entry in (*self, self.total))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            [*(c.ljust(w) for c, w in zip(r[:2], widths[:2], strict=True)), *_right_aligned(r, widths)] for r in rows
        ]
        return "\n".join("  ".join(line).rstrip() for line in lines)

    def __add__(self, other: Stats) -> Stats:
        parts: dict[tuple[str, str], list[OperationStats]] = {}
        for entry in (*self, *other):
            parts.setdefault((entry.operation, entry.algorithm), []).append(entry)
        sums = (_sum(entries, *key) for key, entries in sorted(parts.items()))
        return Stats(tuple(entry for entry in sums if any(getattr(entry, name) for name in COUNTS)))

    def __sub__(self, earlier: Stats) -> Stats:
        negated = (dataclasses.replace(entry, **{name: -getattr(entry, name) for name in NUMBERS}) for entry in earlier)
        return self + Stats(tuple(negated))


_OTHER_OPERATIONS = ("send", "recv", "training step", "comparison", "agreement", "replica check", "failed")
_OPERATIONS = (*_core.COLLECTIVES, *_OTHER_OPERATIONS)
_OTHER_ALGORITHMS = (
    "shared",
    "inline",
    "local",
    "memory",
    "network",
    "self",
    "equal",
    "different",
)  # names other than schedules

_ALIASES = {entry.name: entry.alias for entry in _core.algorithms() if entry.alias}


def _algorithm_names() -> set[str]:
    registered = (entry.name for entry in algorithms.all_registered())
    return {*_OTHER_ALGORITHMS, *_ALIASES.values(), *(entry.name for entry in _core.algorithms()), *registered}


def _matches(name: str, algorithm: str) -> bool:
    schedule = algorithm.rpartition(":")[2]
    family = schedule in _ALIASES and name == algorithm.removesuffix(schedule) + _ALIASES[schedule]
    return name == algorithm or family or algorithm.startswith(f"{name}:")


def _require_name(what: str, name: str, known: set[str]) -> None:
    if name not in known:
        raise ValueError(
            f"stats().of: unknown {what} {name!r}{nearest(name, known)} (known: {', '.join(sorted(known))})"
        )


def _right_aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]


def _row(entry: OperationStats) -> tuple[str, ...]:
    counts = [f"{getattr(entry, name):,}" for name in COUNTS]
    timed = entry.hidden is not None
    times = (f"{entry.seconds_waited:.3f}" if timed else "-", f"{entry.hidden:.0%}" if timed else "-")
    return (entry.operation, entry.algorithm or "-", *counts, *times)


def _sum(entries: Iterable[OperationStats], operation: str, algorithm: str) -> OperationStats:
    listed = list(entries)
    return OperationStats(
        operation, algorithm, **{name: sum(getattr(entry, name) for entry in listed) for name in NUMBERS}
    )


class Ledger:
    """The counters of a communicator, or of the engine.

    Threads that count at the same time use separate accounts.
    """

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
_table_requested = False


def stats(reset: bool = False) -> Stats:
    """Returns the statistics of this process. Not collective.

    The statistics include all communicators of the process, also closed ones, and its named
    operations. With ``RINGCOMM_STATS=1`` they include times, and rank 0 prints them when it ends.

    Parameters
    ----------
    reset : bool
        Count from zero from now on. Other counts, for example those of
        :meth:`Communicator.stats`, continue.

    Returns
    -------
    Stats
        The statistics, by operation and algorithm.

    Examples
    --------
    >>> before = ringcomm.stats()
    >>> y = comm.allreduce(np.ones(1000), algorithm="ring")
    >>> (ringcomm.stats() - before).total.bytes_received
    8000
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
    global _table_requested
    _table_requested = True


def report(rank: int) -> None:
    """Prints the table of this process if it is requested and `rank`, its rank in the job, is 0."""
    if _table_requested and rank == 0:
        sys.stderr.write(f"ringcomm: statistics of rank {rank}\n{stats()}\n")
        sys.stderr.flush()
