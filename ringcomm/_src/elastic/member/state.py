"""The state of training, saved and restored as a unit: Horovod's `State` and `ObjectState`.

Programs commit a state after a batch. `run` restores the last commit after a change of ranks.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ringcomm._src.base.horovod_exceptions import HostsUpdatedInterrupt
from ringcomm._src.elastic.member.commits import HostCommits, ProcessCommit
from ringcomm._src.elastic.member.member import member
from ringcomm._src.named import runtime
from ringcomm._src.named.objects import broadcast_object


class State(ABC):
    """Base class of elastic states.

    A subclass has `save`, `restore` and `sync`, as in Horovod. In an elastic job, a commit contains
    all attributes that can be pickled; `restore` is called after they have been restored.

    Parameters
    ----------
    bcast_object : Callable[..., Any]
        A function of (object, root_rank) that returns the root's object on all ranks; ringcomm's by
        default.
    get_rank : Callable[[], int]
        A function that returns this process's rank.

    Examples
    --------
    >>> ringcomm.init()
    >>> import ringcomm.elastic
    >>> class Counter(ringcomm.elastic.State):
    ...     count = saved = 0
    ...     def save(self): self.saved = self.count
    ...     def restore(self): self.count = self.saved
    ...     def sync(self): self.count = self._bcast_object(self.count, 0)
    >>> counter = Counter()
    >>> counter.count = 5
    >>> counter.commit()
    >>> counter.count = 6
    >>> counter.restore()
    >>> counter.count
    5
    """

    def __init__(
        self, bcast_object: Callable[..., Any] = broadcast_object, get_rank: Callable[[], int] = runtime.rank
    ) -> None:
        self._bcast_object, self._rank = bcast_object, get_rank
        self._host_messages: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self._last_updated_timestamp: Any = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        job_member = member()
        self._store: HostCommits | ProcessCommit = ProcessCommit() if job_member is None else HostCommits(job_member)

    # ---- for programs ------------------------------------------------------------------------------------------------
    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Registers functions that `run` calls after it has restored the state on changed ranks.

        The functions have no arguments. For example, a function can adapt a learning rate to the
        number of ranks.
        """
        self._reset_callbacks.extend(callbacks)

    def commit(self) -> None:
        """Saves the state and checks for changes of hosts. Collective.

        If a rank is lost, training continues from the last commit that all hosts have stored.

        Raises
        ------
        HostsUpdatedInterrupt
            On all ranks, if hosts were added or removed; `run` handles it.
        RingcommError
            On all ranks, if a host has no memory for the commit; the previous commit remains.
        """
        self.save()
        if self.keep():
            raise HostsUpdatedInterrupt(False)

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if hosts were added or removed. Collective."""
        if self._store.vote(self._take_host_updates()):
            raise HostsUpdatedInterrupt(False)

    # ---- for subclasses ----------------------------------------------------------------------------------------------
    @abstractmethod
    def save(self) -> None:
        """Saves the current state."""

    @abstractmethod
    def restore(self) -> None:
        """Restores the state that was saved last."""

    @abstractmethod
    def sync(self) -> None:
        """Copies the state of rank 0 to all ranks."""

    def reset(self) -> None:  # noqa: B027  most have nothing to do
        """Resets the state after a change of ranks. Called before the callbacks."""

    def on_reset(self) -> None:
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """Records that hosts were added or removed, for the next `check_host_updates`."""
        self._host_messages.put((timestamp, update_res))

    def contents(self) -> Any:
        """Returns the contents of a commit: nested values, arrays, tensors."""
        return {name: value for name, value in vars(self).items() if name not in _INTERNAL}

    def put_back(self, contents: Any) -> None:
        """Restores what `contents` returned, possibly in another process."""
        vars(self).update(contents)
        self.restore()

    # ---- for `run` ---------------------------------------------------------------------------------------------------
    def keep(self) -> bool:
        """Makes the saved state the newest commit. Collective.

        Returns True if hosts were added or removed.
        """
        if isinstance(self._store, HostCommits):
            if not isinstance(self, ObjectState):
                self._store.write(self.contents())
            return self._store.seal(self._take_host_updates())
        return self._store.vote(self._take_host_updates())

    def resume(self) -> bool:
        """Restores the job's last commit. Returns False if there is none. Collective."""
        if not isinstance(self._store, HostCommits) or (chosen := self._store.choose()) is None:
            return False
        self.put_back(self._store.take(chosen))
        return True

    def _take_host_updates(self) -> bool:
        updated = False
        while not self._host_messages.empty():
            self._last_updated_timestamp, _ = self._host_messages.get_nowait()
            updated = True
        return updated


_INTERNAL = frozenset(
    ("_bcast_object", "_rank", "_host_messages", "_last_updated_timestamp", "_reset_callbacks", "_store", "_names")
)


class ObjectState(State):
    """A state of attributes: any values that can be pickled, including arrays and tensors.

    The attributes must be equal on all ranks when they are committed: each host stores those of its
    first rank.

    Parameters
    ----------
    bcast_object, get_rank
        As in `State`.
    **kwargs : Any
        The attributes, with their initial values.

    Examples
    --------
    >>> ringcomm.init()
    >>> import ringcomm.elastic
    >>> state = ringcomm.elastic.ObjectState(weights=np.zeros(2), batch=0)
    >>> state.batch = 3
    >>> state.commit()
    >>> state.batch = 4
    >>> state.restore()
    >>> state.batch
    3
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = runtime.rank,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._names = list(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        if isinstance(self._store, ProcessCommit):
            self.save()

    def save(self) -> None:
        self._store.write(self.contents())

    def restore(self) -> None:
        self.put_back(self._store.read())

    def sync(self) -> None:
        if self._names:
            contents = self._bcast_object(self.contents(), 0)
            if self._rank() != 0:
                self.put_back(contents)
        self.save()

    def contents(self) -> Any:
        return {name: getattr(self, name) for name in self._names}

    def put_back(self, contents: Any) -> None:
        """Sets the attributes. Raises ValueError if the contents are of another state."""
        if set(contents) != set(self._names):
            missing, unexpected = set(self._names) - set(contents), set(contents) - set(self._names)
            raise ValueError(
                f"the saved state has other attributes than this state: it lacks {sorted(missing)}, and has "
                f"{sorted(unexpected)} in addition. Each job, and each folder of snapshots, must belong to one program"
            )
        for name, value in contents.items():
            setattr(self, name, value)
