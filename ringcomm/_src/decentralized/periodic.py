"""The engine of periodic methods: LocalSGD, DiLoCo, EASGD and the averagers for NumPy arrays.

A `Periodic` method combines a replica, a rule and a schedule. An exchange is a round of a
`Lane`, a sequence of collectives between the ranks of a set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.core import _core
from ringcomm._src.decentralized.every import Every
from ringcomm._src.decentralized.method import Method
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.decentralized.rounds import Kind, Lane, Outcome, serve
from ringcomm._src.decentralized.rules import Rule
from ringcomm._src.named.process_sets import ProcessSet, Session, global_process_set

Groups = Mapping[int, Any]


class Periodic(Method):
    """A method that exchanges fragments of a replica when they are due, by a rule.

    Parameters
    ----------
    name : str
        The same on all ranks, and used by no other method.
    replica : Replica[Any]
        This rank's weights. The constructor copies the first rank's weights to all ranks.
        Collective.
    rule : Rule
        Computes new weights from the mean of the contributions.
    every : int | str
        Steps, or a time, in which each fragment is exchanged once.
    process_set : ProcessSet
        The ranks that take part.
    groups : Groups | None
        Replaces ``every``: number of steps -> ranks that exchange (`sets_of`). The last set
        includes all other sets.
    delay : int | None
        Steps made between the beginning and the end of a round. None: a round ends where the next
        one begins.
    start : int
        Number of first steps that do not count for ``every``.
    wire : str | WireFormat | None
        Data format between hosts: a dtype's name, or a wire format.
    """

    def __init__(
        self,
        name: str,
        replica: Replica[Any],
        rule: Rule,
        every: int | str,
        process_set: ProcessSet = global_process_set,
        groups: Groups | None = None,
        delay: int | None = 0,
        start: int = 0,
        wire: Any = None,
    ) -> None:
        self.replica, self.rule = replica, rule
        self._delay, self._start = delay, start
        levels = sets_of(groups, process_set) if groups is not None else [(1, process_set)]
        self.every = Every(levels[0][0] if groups is not None else every, len(replica.sizes))
        wires = [(wire, _core.Feedback([size]) if isinstance(wire, WireFormat) else None) for size in replica.sizes]
        self._levels = [
            (
                period // levels[0][0],
                Lane(f"{name}.{i}", members, replica.sizes, replica.dtype, self._fill, self._apply_outcome, wires),
            )
            for i, (period, members) in enumerate(levels)
        ]
        self._in_flight: deque[tuple[int, Lane]] = (
            deque()
        )  # unfinished rounds: the step in which each ends, and its lane
        self.extra_lanes: list[Lane] = []  # further lanes on which this rank answers after it has finished
        self.rounds = 0  # rounds completed
        for number in range(len(replica.sizes)):
            rule.start(replica.broadcast_initial(number, f"{name}.start.{number}", process_set))
        super().__init__(name, process_set)

    # ---- steps -------------------------------------------------------------------------------------------------------
    def stepped(self) -> None:
        """Counts a step of this rank, and exchanges what is due."""
        self.steps += 1
        for _, lane in self._levels:
            lane.steps = self.steps
        while self._in_flight and self._in_flight[0][0] <= self.steps and self._delay is not None:
            self._complete()
        counted = self.steps - self._start
        if counted <= 0:
            self.every.restart()
        elif self.every.due(counted):
            self._exchange()

    def _exchange(self) -> None:
        self.flush(None if self._delay is None else self.steps)
        lane = next(lane for ratio, lane in reversed(self._levels) if (self.every.begun + 1) % ratio == 0)
        self.every.count()
        lane.begin()
        self._in_flight.append((self.steps + (self._delay or 0), lane))
        if self._delay == 0:
            self._complete()

    def _complete(self) -> None:
        self._in_flight.popleft()[1].complete()
        self.every.restart()

    def flush(self, until: int | None = None) -> None:
        """Waits for the unfinished rounds that end by step ``until``; None: for all of them."""
        while self._in_flight and (until is None or self._in_flight[0][0] <= until):
            self._complete()

    def exchange_all(self) -> None:
        """Exchanges all fragments between all ranks, in rounds of any kind."""
        self.flush()
        for _ in self.replica.sizes:
            self._top.exchange()
        self.every.restart()

    def exchange_now(self) -> None:
        """Exchanges all fragments between all ranks at a common point. Collective.

        If other ranks run a scheduled exchange meanwhile, this rank takes part, and then tries
        again.
        """
        self.flush()
        synchronized = False
        while not synchronized:
            outcomes = [self._top.exchange(Kind.SYNCHRONIZE) for _ in self.replica.sizes]
            synchronized = all(outcome.is_synchronized for outcome in outcomes)
        self.every.restart()

    # ---- the model ---------------------------------------------------------------------------------------------------
    @property
    def _top(self) -> Lane:
        return self._levels[-1][1]

    def _fill(self, fragment: int, flat: Flat) -> None:
        self.replica.read(fragment, flat)
        self.rule.contribute(fragment, flat)

    def _apply_outcome(self, fragment: int, outcome: Outcome) -> None:
        self.rounds += 1
        old_weights: Callable[[], Flat] = lambda: self.replica.flat_copy(fragment)  # noqa: E731
        self.rule.apply_mean(fragment, outcome.mean, outcome.counted, old_weights)
        self.distance = self.replica.distance(fragment, outcome.mean)
        self.replica.write(fragment, outcome.mean)

    @property
    def has_own_model(self) -> bool:
        return bool(self.rule.anchors)

    def _means(self) -> list[Flat]:
        """Returns the mean of all replicas. Collective.

        If other ranks exchange meanwhile, this rank takes part, and then reads again.
        """
        self.flush()
        while True:
            outcomes = [self._top.exchange(Kind.PEEK) for _ in self.replica.sizes]
            if not any(outcome.is_exchange for outcome in outcomes):
                return [outcome.mean for outcome in outcomes]

    def global_weights(self) -> AbstractContextManager[None]:
        """Returns a context manager in which the replica holds the method's model.

        Leaving the context restores the old weights. The model is the anchor or centre if there is
        one, else the mean of all replicas. For the mean, all ranks must enter the context.
        """
        if self.finished:
            return nullcontext()
        return self.replica.temporarily(self._anchored() if self.has_own_model else self._means())

    def _anchored(self) -> list[Flat]:
        flats = [self.replica.flat_copy(number) for number in range(len(self.replica.sizes))]
        for flat, anchor in zip(flats, self.rule.anchors, strict=True):
            flat[: len(anchor)] = anchor
        return flats

    # ---- the end -----------------------------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Exchanges this rank's last weights, and answers rounds until all ranks have finished.

        Then all ranks hold the same model.
        """
        self.flush()
        self.rule.prepare_finish()
        for _, lane in self._levels:
            lane.finish(len(self.replica.sizes) if lane is self._top else 0)
        for lane in self.extra_lanes:
            lane.finish(0)
        lanes = [*self.extra_lanes, *(lane for _, lane in self._levels)]
        serve(lanes, self._extra_work())
        if self.has_own_model:
            for number, flat in enumerate(self._anchored()):
                self.replica.write(number, flat)
        for lane in lanes:
            lane.close()

    def _extra_work(self) -> Iterator[None] | None:
        """Returns work for this rank while it takes part in other ranks' last exchanges, or None."""
        return None

    # ---- statistics and state ----------------------------------------------------------------------------------------
    @property
    def exchanges(self) -> int:
        return self.rounds

    @property
    def updates(self) -> int:
        """Sum of the steps of all ranks, as of the last exchange."""
        return self._top.updates

    def stats(self) -> dict[str, Any]:
        lanes = [lane for _, lane in self._levels] + self.extra_lanes
        waited, nbytes = sum(lane.waited for lane in lanes), sum(lane.bytes for lane in lanes)
        return self._stats(self.exchanges, waited, nbytes, distance=self.distance)

    def state(self) -> dict[str, Any]:
        """Returns the state for a restart, without the effect of unfinished rounds."""
        return {"steps": self.steps, "begun": self.every.begun, "rule": self.rule.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.steps, self.every.begun = state["steps"], state["begun"]
        self.rule.load(state["rule"])
        self.every.restart()


def sets_of(groups: Groups, process_set: ProcessSet) -> list[tuple[int, ProcessSet]]:
    """Returns the levels of an exchange: (number of steps, ranks), in rising order. Collective.

    The ranks are "host" (the ranks of this host), "all", or a process set that includes this rank.

    Raises
    ------
    ValueError
        A number of steps does not divide the next one, or the last level does not include all
        ranks.
    """
    levels: list[tuple[int, ProcessSet]] = []
    for period in sorted(groups):
        if isinstance(period, bool) or not isinstance(period, int) or period < 1:
            raise ValueError(f"groups: {period!r} is not a positive number of steps")
        if levels and period % levels[-1][0]:
            raise ValueError(f"groups: {levels[-1][0]} does not divide {period}, the next larger number of steps")
        members = groups[period]
        if members == "all":
            members = process_set
        elif members == "host":
            members = of_this_host(process_set)
        elif not isinstance(members, ProcessSet):
            raise ValueError(f'groups: {members!r} is neither "host" nor "all" nor a ProcessSet')
        members.require_rank()
        levels.append((period, members))
    if not levels or list(levels[-1][1].ranks) != list(process_set.ranks):
        raise ValueError('groups: the ranks of the largest number of steps must be "all"')
    return levels


def of_this_host(process_set: ProcessSet) -> ProcessSet:
    """Returns the process set of this host's ranks. Collective over all ranks of the world."""
    session = process_set.session()
    if process_set is not global_process_set:
        raise ValueError(
            "the ranks of a host are selected from the set of all ranks only; create a process set for each host"
        )
    own_set = process_set
    for host in dict.fromkeys(session.host_of):
        ranks = [rank for rank in process_set.ranks if session.host_of[rank] == host]
        host_set = set_of(session, ranks)
        if session.rank in ranks:
            own_set = host_set
    return own_set


def set_of(session: Session, ranks: list[int]) -> ProcessSet:
    """Returns the process set of these ranks, a new one if needed. Collective over all ranks."""
    existing = next((candidate for candidate in session.sets if list(candidate.ranks) == ranks), None)
    return existing or session.add_set(ProcessSet(ranks))


def wire_of(wire: Any, narrow_only: bool) -> Any:
    """Returns the wire format. Raises ValueError if it is invalid.

    ``narrow_only``: only 16-bit dtypes and None are valid.
    """
    if isinstance(wire, WireFormat) and not narrow_only:
        return wire
    if wire in (None, "float16", "bfloat16"):
        return wire
    alternatives = "" if narrow_only else ", or a wire format, for example Compression.int8"
    raise ValueError(f'wire={wire!r}: must be None, "float16" or "bfloat16"{alternatives}')


def agreed_text(**settings: Any) -> str:
    """Returns the settings as text, for a comparison between ranks."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())
