"""Process sets: groups of ranks in which named operations run.

Users add and remove them; the session attaches each set to the engine and to shared memory.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from ringcomm._src.algorithms.custom_algorithms import CustomAlgorithms
from ringcomm._src.base import arguments, process
from ringcomm._src.config.config import Config
from ringcomm._src.core import _core
from ringcomm._src.platform.links import Link

# Number of nameless operations after which their names repeat; bounds the engine's table of names.
NAMELESS = 1024

GLOBAL = 0  # the global set's process_set_id


def as_ranks(ranks: Any, what: str) -> list[int]:
    """Returns a list of ranks. Raises ValueError unless `ranks` is an iterable of integers."""
    try:
        return [arguments.integer(what, rank) for rank in ranks]
    except TypeError:
        raise ValueError(f"{what} takes a list of ranks or an mpi4py communicator, not {ranks!r}") from None


class Session(Protocol):
    """Interface of the session that a process set in use needs (ringcomm/_src/named/session.py)."""

    rank: int
    link: Link
    worker: _core.Worker
    engine: _core.Engine
    custom_algorithms: CustomAlgorithms
    config: Config
    host_of: list[int]  # host index of each rank of the world
    own_core: bool  # the worker's thread shares no core with the program; equal on all ranks of a host
    sets: list[ProcessSet]  # sets in use; the global set is the first
    at_end: list[Callable[[], None]]  # functions that the session calls when it ends
    extras: dict[str, Any]  # objects of other modules that live as long as the session

    def add_set(self, process_set: ProcessSet) -> ProcessSet:
        """Adds a set. Collective over all ranks of the world."""

    def remove_set(self, process_set: ProcessSet) -> None:
        """Removes a set. Collective over all ranks of the world."""

    def translate(self, comm: Any) -> list[int]:
        """Returns the world's ranks of an mpi4py communicator."""


class Turns:
    """Makes threads take turns, one at a time, in the same order on all ranks.

    A turn is a position in this order. Threads of the first rank draw the turns.
    """

    def __init__(self) -> None:
        self._drawn, self._next = 0, 0
        self._changed = threading.Condition()

    def draw(self) -> int:
        """Returns the next turn. The first rank draws it, and sends it to the other ranks."""
        with self._changed:
            self._drawn += 1
            return self._drawn - 1

    def return_last(self) -> None:
        """Takes back the last drawn turn, on the first rank, if not all ranks take this turn."""
        with self._changed:
            self._drawn -= 1

    @contextlib.contextmanager
    def take(self, turn: int) -> Iterator[None]:
        """Waits until all earlier turns are over, then runs the block as this turn."""
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

    Before using it, pass it to ``init(process_sets=[...])`` or ``add_process_set``, which set
    ``process_set_id``. The set is then in use, until ``remove_process_set`` or ``shutdown``.

    Parameters
    ----------
    ranks_or_comm : Iterable[int] | Any
        Ranks of the world, or an mpi4py communicator of these processes.

    Raises
    ------
    ValueError
        ``ranks_or_comm`` is neither.

    Examples
    --------
    >>> ringcomm.init()
    >>> first = ringcomm.add_process_set(ringcomm.ProcessSet([0]))
    >>> first.included() == (ringcomm.rank() == 0), first.ranks, first.size()
    (True, [0], 1)
    >>> if first.included():
    ...     y = ringcomm.allreduce(np.ones(2), process_set=first)
    >>> ringcomm.remove_process_set(first)
    True
    """

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        self.process_set_id: int | None = None
        self._ranks_or_comm = ranks_or_comm
        self._ranks: list[int] | None = None
        self.from_communicator = hasattr(ranks_or_comm, "Get_group")
        if not self.from_communicator:
            self._ranks = sorted(set(as_ranks(ranks_or_comm, "ProcessSet")))
        self._session: Session | None = None
        self.cached_calls = _core.NamedCalls(None, 0)  # cache of in-place operations
        self.link = _core.SetLink()  # the set's identity in graphs, which outlive shutdown()
        self.node: _core.Node | None = None  # arenas of the set's ranks, if these share memory
        self._me = -1  # this process's rank in the set; -1: not a member
        self.turns = Turns()
        self._free_slots: list[int] = []
        self.joined = False  # True while this rank has joined and not all ranks have
        self.joins = 0  # joins that have ended, which is equal on all ranks of the set
        self._counters: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        self.optimizers = itertools.count()  # numbers of the optimizers that use the set, since it was added
        self.optimizers_of_threads: dict[int, itertools.count[int]] = defaultdict(itertools.count)  # by optimizer's key

    @property
    def ranks(self) -> list[int]:
        """Ranks of the world, in ascending order.

        None if they are not known yet: the global set, and a set made from a communicator, get them
        from ``init()``.
        """
        return self._ranks  # type: ignore[return-value]

    def consist_of(self, comm: Any) -> None:
        """Stores the argument of `init`, for the global set."""
        self._ranks_or_comm, self.from_communicator = comm, hasattr(comm, "Get_group")

    @property
    def mpi_comm(self) -> Any:
        """The mpi4py communicator that the set was made from, or None."""
        return self._ranks_or_comm if self.from_communicator else None

    def size(self) -> int:
        """Returns the number of ranks; None for a set that is not in use.

        Raises ValueError for the global set before ``init()``.
        """
        if self.process_set_id is None:
            return None  # type: ignore[return-value]
        self.session()
        return len(self.ranks)

    def rank(self) -> int:
        """Returns this process's rank in the set; None for a set that is not in use.

        Raises ValueError if this process is not in the set.
        """
        if self.process_set_id is None:
            return None  # type: ignore[return-value]
        return self.require_rank()

    def require_rank(self) -> int:
        """Returns this process's rank in the set.

        Raises ValueError if this process is not in the set, or the set is not in use.
        """
        session = self.session()
        if self._me < 0:
            raise ValueError(f"rank {session.rank} is not in process set {self.process_set_id} of ranks {self.ranks}")
        return self._me

    def included(self) -> bool:
        """Returns True if this process is in the set; None if the set's ranks are not known.

        Raises ValueError before ``init()``.
        """
        world = global_process_set.session()
        if self._session is not None:
            return self._me >= 0
        return None if self._ranks is None else world.rank in self._ranks  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self._ranks}, mpi_comm={self.mpi_comm})"

    # A copied model shares the set. A set unpickled in another process must be added there.
    def __deepcopy__(self, memo: Any) -> ProcessSet:
        return self

    def __reduce__(self) -> Any:
        return "global_process_set" if self is global_process_set else (ProcessSet, (self._ranks or (),))

    # ---- for named operations and bindings ---------------------------------------------------------------------------
    def session(self) -> Session:
        """Returns the session. Raises ValueError unless the set is in use."""
        if self._session is None:
            if self is global_process_set:
                raise process.not_initialized()
            raise ValueError(
                f"{self!r} has not been added: pass it to ringcomm.init(process_sets=...) or add_process_set()"
            )
        return self._session

    def set_id(self) -> int:
        """Returns the engine's number of this set. Raises ValueError if this rank is not in it."""
        self.require_rank()
        assert self.process_set_id is not None
        return self.process_set_id

    def algorithm(self, collective: str, name: str) -> str:
        """Returns the engine's name of an algorithm.

        Raises ValueError if it is unknown, not proved correct, or its root is not a rank of this
        set.
        """
        return self.session().custom_algorithms.name_with_digest(collective, name, self.require_rank(), len(self.ranks))

    def next_name(self, kind: str) -> str:
        """Returns the name of a nameless operation: a count, which is equal on all ranks."""
        if self.joined:
            raise ValueError("this rank has joined: it cannot submit operations until all ranks have joined")
        return f"{kind}.noname.{next(self._counters[kind]) % NAMELESS}"

    def rejoin(self) -> None:
        """Restarts the counters, which differ between ranks after a join."""
        self._counters.clear()
        self.link.restart()
        self.joined = False
        self.joins += 1

    def take_slot(self) -> tuple[_core.Node | None, int]:
        """Returns the arenas and a free slot of them for a plan; (None, 0) if there is none.

        The slot is identical on all ranks of the set if they take and return slots in the same
        order.
        """
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
        self.cached_calls = _core.NamedCalls(session.engine, set_id)
        self.link.connect(session.engine, set_id, self._me, len(self._ranks))
        self._free_slots = list(slots) if node is not None else []
        self._counters.clear()
        self.optimizers = itertools.count()
        self.optimizers_of_threads.clear()
        self.turns = Turns()

    def detach(self) -> None:
        self._session = self.process_set_id = self.node = None
        self.link.disconnect()
        self.cached_calls = _core.NamedCalls(None, 0)
        self._free_slots = []
        if self is global_process_set:
            self.process_set_id, self._ranks, self.from_communicator = GLOBAL, None, False
        elif self.from_communicator:
            self._ranks = None  # the next init() may have different ranks

    def world_ranks(self, session: Session) -> list[int]:
        """Returns the set's world ranks. Ranks may pass different arguments to ProcessSet."""
        if self._ranks is not None:
            return self._ranks
        return session.translate(self._ranks_or_comm)


global_process_set = ProcessSet(())
global_process_set.detach()  # init() sets its ranks


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set of ranks. Collective over all ranks of the world, members or not.

    Parameters
    ----------
    process_set : ProcessSet | Sequence[int]
        The set, or its ranks of the world.

    Returns
    -------
    ProcessSet
        The set, with its ``process_set_id``.

    Raises
    ------
    ValueError
        Ringcomm is not initialised, the set is already in use, a set of these ranks exists, or
        they are not ranks of the world.
    ringcomm.MismatchError
        Ranks passed different sets, or a rank made a different call.
    ringcomm.RankJoinedError
        A rank has joined, so it does not take part.

    Examples
    --------
    >>> ringcomm.init()
    >>> last = ringcomm.add_process_set([ringcomm.size() - 1])
    >>> last.ranks
    [1]
    >>> ringcomm.remove_process_set(last)
    True
    """
    return global_process_set.session().add_set(
        process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set. Collective over all ranks of the world.

    Parameters
    ----------
    process_set : ProcessSet
        A set without operations or training steps in flight.

    Returns
    -------
    bool
        False for the global set and for a set that is not in use.

    Raises
    ------
    ValueError
        Ringcomm is not initialised.
    ringcomm.MismatchError
        Ranks passed different sets, or a rank made a different call.
    ringcomm.RankJoinedError
        A rank has joined, so it does not take part.

    Examples
    --------
    >>> ringcomm.init()
    >>> first = ringcomm.add_process_set([0])
    >>> ringcomm.remove_process_set(first)
    True
    >>> ringcomm.remove_process_set(ringcomm.global_process_set)
    False
    """
    session = global_process_set.session()
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    session.remove_set(process_set)
    return True
