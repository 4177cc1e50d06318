"""Rounds: exchanges between ranks that may have made different numbers of steps, or have finished.

A round consists of two named operations, submitted together: an allgather of every rank's row of
numbers, and the sum of the contributions. The rows give the number of contributions, so that the
mean excludes ranks without one. A rank that has finished answers with zeros that do not count,
until all ranks have finished. `Periodic` and `HostAveraging` run their exchanges on lanes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringcomm._src.arrays import arrays, shared
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base.ops import Sum
from ringcomm._src.calls import row_calls
from ringcomm._src.named import named
from ringcomm._src.named.collectives import Operations
from ringcomm._src.named.process_sets import ProcessSet
from ringcomm._src.named.reductions import Reduction

Flat = NDArray[Any]
_operations: Operations[Any] = Operations()
_END = object()
_LONGEST_SLEEP = 5e-3  # seconds between two polls of a rank that answers on several lanes


class Kind(IntEnum):
    """The request of a rank for a round."""

    SERVE = 0  # the rank has finished; it accepts any kind of round
    PEEK = 1  # reads the mean without changing the rank's weights
    EXCHANGE = 2
    SYNCHRONIZE = 3  # an exchange at a point that all ranks reach


class Row(NamedTuple):
    """The numbers that a rank publishes in a round."""

    rank: int  # rank in the world
    kind: int
    counted: int  # 1: the rank contributed
    finishing: int
    remaining: int  # contributions that follow this one, if the rank is finishing
    steps: int


class Outcome(NamedTuple):
    """The result of a round, equal on all ranks: the mean of ``counted`` contributions."""

    mean: Flat
    counted: int
    rows: list[Row]

    @property
    def is_exchange(self) -> bool:
        """True if ranks continue from the mean; False if all ranks only read it."""
        return any(row.kind >= Kind.EXCHANGE for row in self.rows)

    @property
    def is_synchronized(self) -> bool:
        """True if all ranks have reached the common point: no rank runs a scheduled exchange."""
        return all(row.kind in (Kind.SYNCHRONIZE, Kind.SERVE) for row in self.rows)


class _Round(NamedTuple):
    fragment: int
    header: Handle[Any]
    data: Handle[Any]


class Lane:
    """One sequence of rounds between the ranks of a set. The rounds exchange the fragments in turn.

    Parameters
    ----------
    name : str
        The same on all ranks, and used by no other lane.
    process_set : ProcessSet
        The ranks that take part.
    sizes : Sequence[int]
        Elements of each fragment.
    dtype : np.dtype
        ``float32`` or ``float64``.
    fill : Callable[[int, Flat], None]
        ``fill(fragment, flat)`` writes this rank's contribution.
    use_outcome : Callable[[int, Outcome], None]
        ``use_outcome(fragment, outcome)`` uses the result of an exchange that has at least one
        contribution.
    wires : Sequence[tuple[Any, Any]] | None
        Wire format and error feedback of each fragment between hosts.
    rounds : int | None
        Number of rounds; None: until all ranks have finished.
    """

    def __init__(
        self,
        name: str,
        process_set: ProcessSet,
        sizes: Sequence[int],
        dtype: Any,
        fill: Callable[[int, Flat], None],
        use_outcome: Callable[[int, Outcome], None],
        wires: Sequence[tuple[Any, Any]] | None = None,
        rounds: int | None = None,
    ) -> None:
        self.name, self.process_set, self.sizes = name, process_set, list(sizes)
        self._dtype, self._fill, self._use_outcome = dtype, fill, use_outcome
        self._wires = list(wires) if wires is not None else [(None, None)] * len(self.sizes)
        self._rounds, self.begun = rounds, 0
        self._flats: dict[int, Flat] = {}
        self._in_flight: deque[_Round] = deque()
        self._finishing, self._remaining = False, 0
        self.steps = 0  # steps of this rank
        self.rows: list[Row] = []  # rows of the last round
        self.waited = 0.0  # seconds spent waiting
        self.bytes = 0  # bytes contributed

    @property
    def is_finished(self) -> bool:
        """True if no rank begins another round. The answer is the same on every rank."""
        if self._rounds is not None and self.begun >= self._rounds and not self._in_flight:
            return True
        return bool(self.rows) and all(row.finishing and not row.remaining for row in self.rows) and not self._in_flight

    @property
    def updates(self) -> int:
        """Number of steps of all ranks, as of the last round."""
        own_rank = self.process_set.ranks[self.process_set.require_rank()]
        return self.steps + sum(row.steps for row in self.rows if row.rank != own_rank)

    @property
    def in_flight(self) -> int:
        """Number of unfinished rounds."""
        return len(self._in_flight)

    def begin(self, kind: Kind = Kind.EXCHANGE, counted: bool = True) -> None:
        """Submits this rank's part of the next round: its contribution, or zeros. Does not wait."""
        fragment = self.begun % len(self.sizes)
        if self._finishing:
            counted = self._remaining > 0
            kind = Kind.EXCHANGE if counted else Kind.SERVE
            self._remaining = max(self._remaining - 1, 0)
        flat = self._flat(fragment)
        if counted:
            self._fill(fragment, flat)
            self.bytes += flat.nbytes
        else:
            flat[:] = 0
        own_rank = self.process_set.ranks[self.process_set.require_rank()]
        row = np.array(Row(own_rank, kind, counted, self._finishing, self._remaining, self.steps), np.int64)
        name = f"{self.name}.{fragment}"
        header = named.submit(self.process_set, row_calls.allgather_any(arrays.source(row)), name)
        wire, feedback = self._wires[fragment]
        reduction = Reduction(Sum, 1.0, 1.0, self.process_set, wire=wire, feedback=feedback)
        data = reduction.submit(_operations.allreduce_request(reduction, flat, in_place=True), name)
        self._in_flight.append(_Round(fragment, header, data))
        self.begun += 1

    def ready(self) -> bool:
        """Returns True if ``complete`` would not wait."""
        return bool(self._in_flight) and self._in_flight[0].header.test() and self._in_flight[0].data.test()

    def complete(self) -> Outcome:
        """Waits for the oldest round in flight. Passes an exchange's result to ``use_outcome``."""
        oldest = self._in_flight[0]
        since = time.monotonic()
        gathered, flat = oldest.header.wait(), oldest.data.wait()
        if not self._finishing:
            self.waited += time.monotonic() - since
        self._in_flight.popleft()
        self.rows = [Row(*numbers) for numbers in gathered.reshape(-1, len(Row._fields)).tolist()]
        count = sum(row.counted for row in self.rows)
        if count > 1:
            np.divide(flat, count, out=flat)
        outcome = Outcome(flat, count, self.rows)
        if count and outcome.is_exchange:
            self._use_outcome(oldest.fragment, outcome)
        return outcome

    def exchange(self, kind: Kind = Kind.EXCHANGE) -> Outcome:
        """Runs the next round to its end."""
        self.begin(kind)
        return self.complete()

    def finish(self, contributions: int) -> None:
        """Records that this rank makes no more steps.

        The rank contributes to the next ``contributions`` rounds, and answers later rounds without
        a contribution.
        """
        self._finishing, self._remaining = True, contributions

    def close(self) -> None:
        """Releases the memory of the lane. No round may be unfinished."""
        self._flats.clear()

    def _flat(self, fragment: int) -> Flat:
        flat = self._flats.get(fragment)
        if flat is None:
            flat = shared.empty(self.process_set.node, self.sizes[fragment], self._dtype)
            self._flats[fragment] = flat
        return flat


def serve(lanes: Sequence[Lane], extra_work: Iterator[None] | None = None) -> None:
    """Answers on all lanes until no lane has further rounds and ``extra_work`` is exhausted.

    This rank must be finishing on every lane, without an unfinished round.
    """
    sleep, busy = 0.0, extra_work is not None
    while True:
        unfinished = [lane for lane in lanes if not lane.is_finished]
        busy = extra_work is not None and busy and next(extra_work, _END) is not _END
        if not unfinished and not busy:
            return
        for lane in unfinished:
            if not lane.in_flight:
                lane.begin()
        if len(unfinished) == 1 and not busy:
            unfinished[0].complete()
        elif ready := [lane for lane in unfinished if lane.ready()]:
            for lane in ready:
                lane.complete()
            sleep = 0.0
        else:
            time.sleep(sleep)
            sleep = min(sleep * 2 + 1e-4, _LONGEST_SLEEP)
