"""Process sets: groups of ranks that named operations run in."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from ringcomm._src.algorithms.custom_algorithms import CustomAlgorithms
from ringcomm._src.base import arguments
from ringcomm._src.base.errors import NotInitializedError
from ringcomm._src.config.config import Config
from ringcomm._src.core import _core
from ringcomm._src.platform.links import Link

# Names of nameless operations repeat after so many, so that the engine's memory of names holds them all.
NAMELESS = 1024

GLOBAL = 0  # the global set's process_set_id


def as_ranks(given: Any, what: str) -> list[int]:
    """Raises ValueError for anything but integers."""
    try:
        return [arguments.integer(what, rank) for rank in given]
    except TypeError:
        raise ValueError(f"{what} takes a list of ranks or an mpi4py communicator, not {given!r}") from None


class Session(Protocol):
    """What a process set in use needs of what `init` has made (ringcomm/_src/named/runtime.py)."""

    rank: int
    link: Link
    worker: _core.Worker
    engine: _core.Engine
    own: CustomAlgorithms
    config: Config
    host_of: list[int]  # of each rank of the world
    sets: list[ProcessSet]  # in use; the global one is the first
    at_end: list[Callable[[], None]]  # to be called when it ends
    extras: dict[str, Any]  # what is made when it is first needed, once

    def add_set(self, process_set: ProcessSet) -> ProcessSet:
        """Collective over all ranks of the world."""

    def remove_set(self, process_set: ProcessSet) -> None:
        """Collective over all ranks of the world."""

    def translate(self, comm: Any) -> list[int]:
        """The world's ranks that an mpi4py communicator holds."""


class Turns:
    """The order in which the first rank's threads begin something, for the threads of the other ranks to keep to."""

    def __init__(self) -> None:
        self._drawn, self._next = 0, 0
        self._changed = threading.Condition()

    def draw(self) -> int:
        """On the first rank, which sends it to the others."""
        with self._changed:
            self._drawn += 1
            return self._drawn - 1

    def return_last(self) -> None:
        """On the first rank, if not all ranks take this turn."""
        with self._changed:
            self._drawn -= 1

    @contextlib.contextmanager
    def take(self, turn: int) -> Iterator[None]:
        """Waits until all turns before this one are over."""
        with self._changed:
            self._changed.wait_for(lambda: self._next >= turn)
        try:
            yield
        finally:
            with self._changed:
                self._next = turn + 1
                self._changed.notify_all()


class ProcessSet:
    """A group of ranks for named operations.

    Takes effect when it is given to ``ringcomm.init(process_sets=[...])`` or ``ringcomm.add_process_set``, which fill
    in ``process_set_id``.

    Args:
        ranks_or_comm: ranks of the world, or an mpi4py communicator of these processes.

    Raises:
        ValueError: it is neither.
    """

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        self.process_set_id: int | None = None
        self._given = ranks_or_comm
        self._ranks: list[int] | None = None
        self.from_communicator = hasattr(ranks_or_comm, "Get_group")
        if not self.from_communicator:
            self._ranks = sorted(set(as_ranks(ranks_or_comm, "ProcessSet")))
        self._session: Session | None = None
        self.known = _core.NamedCalls(None, 0)  # operations of it that may come again
        self.link = _core.SetLink()  # the set as graphs know it, which outlive shutdown()
        self.node: _core.Node | None = None  # the arenas of its ranks, if all are on one host that has memory to give
        self._me = -1  # this process's rank in it
        self.turns = Turns()
        self._free_slots: list[int] = []
        self.joined = False  # this rank, and not yet all
        self._counters: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        self.optimizers = itertools.count()  # numbers for those that use it, since it was added
        self.optimizers_of_threads: dict[int, itertools.count[int]] = defaultdict(itertools.count)  # by what they train

    @property
    def ranks(self) -> list[int]:
        """Ranks of the world, in order. None if not known yet: those of the global set, and of one made from a
        communicator, need ``init()``."""
        return self._ranks  # type: ignore[return-value]

    def consist_of(self, comm: Any) -> None:
        """Remembers what `init` was given, for the global set."""
        self._given, self.from_communicator = comm, hasattr(comm, "Get_group")

    @property
    def mpi_comm(self) -> Any:
        """The communicator that it was made from, or None."""
        return self._given if self.from_communicator else None

    def size(self) -> int:
        """How many ranks it has; None for a set that is not in use. ValueError before ``init()`` for the global one."""
        if self.process_set_id is None:
            return None  # type: ignore[return-value]
        self.session()
        return len(self.ranks)

    def rank(self) -> int:
        """This process's rank in the set; None for a set that is not in use. ValueError if it is not in it."""
        if self.process_set_id is None:
            return None  # type: ignore[return-value]
        return self.require_rank()

    def require_rank(self) -> int:
        """This process's rank in the set. ValueError if it is not in it, or the set is not in use."""
        session = self.session()
        if self._me < 0:
            raise ValueError(f"rank {session.rank} is not in process set {self.process_set_id} of ranks {self.ranks}")
        return self._me

    def included(self) -> bool:
        """Whether this process is in the set; None if its ranks are not known. ValueError before ``init()``."""
        world = global_process_set.session()
        if self._session is not None:
            return self._me >= 0
        return None if self._ranks is None else world.rank in self._ranks  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self._ranks}, mpi_comm={self.mpi_comm})"

    # A copy of a model that holds a set uses the same one; elsewhere it is the same ranks, to be added there.
    def __deepcopy__(self, memo: Any) -> ProcessSet:
        return self

    def __reduce__(self) -> Any:
        return "global_process_set" if self is global_process_set else (ProcessSet, (self._ranks or (),))

    # ---- for named operations and bindings ---------------------------------------------------------------------------
    def session(self) -> Session:
        """Raises ValueError unless the set is in use."""
        if self._session is None:
            if self is global_process_set:
                raise NotInitializedError("ringcomm has not been initialized; use ringcomm.init().")
            raise ValueError(
                f"{self!r} has not been added: give it to ringcomm.init(process_sets=...) or add_process_set()"
            )
        return self._session

    def set_id(self) -> int:
        """The engine's number of this set. ValueError if this rank is not in it."""
        self.require_rank()
        assert self.process_set_id is not None
        return self.process_set_id

    def algorithm(self, collective: str, name: str) -> str:
        """What the engine knows an algorithm by. Raises ValueError: there is none, it is wrong, or its root is no rank
        of this set."""
        return self.session().own.named(collective, name, self.require_rank(), len(self.ranks))

    def next_name(self, kind: str) -> str:
        """For a nameless operation. Depends only on how many the set has had, so that ranks agree on it."""
        if self.joined:
            raise ValueError("this rank has joined: no operation can be submitted until all ranks have")
        return f"{kind}.noname.{next(self._counters[kind]) % NAMELESS}"

    def rejoin(self) -> None:
        """All ranks have joined, some after more operations than others: nameless ones are counted from the first."""
        self._counters.clear()
        self.link.restart()
        self.joined = False

    def take_slot(self) -> tuple[_core.Node | None, int]:
        """A stream of the host's shared memory (for a plan), the same on every rank of the set if all take and give
        back in the same order; (None, 0) where there is none left, or no shared memory."""
        if self.node is None or not self._free_slots:
            return None, 0
        return self.node, self._free_slots.pop(0)

    def give_slot(self, slot: int) -> None:
        if slot:
            self._free_slots.append(slot)

    # ---- for the session ---------------------------------------------------------------------------------------------
    def attach(
        self, session: Session, set_id: int, ranks: Sequence[int], node: _core.Node | None, slots: range
    ) -> None:
        self._session, self.process_set_id, self._ranks, self.node = session, set_id, list(ranks), node
        self._me = self._ranks.index(session.rank) if session.rank in self._ranks else -1
        self.known = _core.NamedCalls(session.engine, set_id)
        self.link.connect(session.engine, set_id, self._me, len(self._ranks))
        self._free_slots = list(slots) if node is not None else []
        self._counters.clear()
        self.optimizers = itertools.count()
        self.optimizers_of_threads.clear()
        self.turns = Turns()

    def detach(self) -> None:
        self._session = self.process_set_id = self.node = None
        self.link.disconnect()
        self.known = _core.NamedCalls(None, 0)
        self._free_slots = []
        if self is global_process_set:
            self.process_set_id, self._ranks, self.from_communicator = GLOBAL, None, False
        elif self.from_communicator:
            self._ranks = None  # the next init() may have other ranks

    def world_ranks(self, session: Session) -> list[int]:
        """What the set was made from, as ranks of the world; every rank's own view."""
        if self._ranks is not None:
            return self._ranks
        return session.translate(self._given)


global_process_set = ProcessSet(())
global_process_set.detach()  # its ranks are not known yet


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set of ranks. Collective over all ranks of the world, members or not.

    Returns:
        The set, with its ``process_set_id``.

    Raises:
        ValueError: not initialised, the set is in use already, or its ranks are not of the world.
        ringcomm.MismatchError: ranks gave different sets, or made another call.
        ringcomm.RankJoinedError: a rank has joined, and does not answer.
    """
    return global_process_set.session().add_set(
        process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set that has no operation and no training step in flight. Collective over all ranks of the world. False
    for the global set and for one that is not in use."""
    session = global_process_set.session()
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    session.remove_set(process_set)
    return True
