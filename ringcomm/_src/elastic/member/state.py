"""The state of training, which is saved and restored as a unit: Horovod's `State` and `ObjectState`.

Programs commit a state after a batch. `run` restores the last commit after a change of ranks.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ringcomm._src.base.horovod_exceptions import HostsUpdatedInterrupt
from ringcomm._src.elastic.member.commits import Kept, Private
from ringcomm._src.elastic.member.member import member
from ringcomm._src.named import runtime
from ringcomm._src.named.objects import broadcast_object


class State(ABC):
    """Base class of states.

    A subclass has `save`, `restore` and `sync`, as in Horovod. In an elastic job, a commit contains
    all attributes that can be pickled; `restore` is called after they have been restored.

    Args:
        bcast_object: a function of (object, root_rank) that returns the root's object on all ranks;
            ringcomm's by default.
        get_rank: a function that returns this process's rank.
    """

    def __init__(
        self, bcast_object: Callable[..., Any] = broadcast_object, get_rank: Callable[[], int] = runtime.rank
    ) -> None:
        self._bcast_object, self._rank = bcast_object, get_rank
        self._host_messages: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self._last_updated_timestamp: Any = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        here = member()
        self._store: Kept | Private = Private() if here is None else Kept(here)

    # ---- for programs ------------------------------------------------------------------------------------------------
    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Registers functions without arguments that `run` calls after a change of ranks, when the state is restored.

        A callback can adapt a learning rate to the number of ranks, for example.
        """
        self._reset_callbacks.extend(callbacks)

    def commit(self) -> None:
        """Saves the state and checks for changes of hosts. Collective.

        Training continues from the commit if a rank is lost. A commit counts when all ranks have
        made it.

        Raises:
            HostsUpdatedInterrupt: on all ranks, if hosts were added or removed; `run` handles it.
            RingcommError: on all ranks, if a host has no memory for the commit; the previous commit
                remains.
        """
        self.save()
        if self.keep():
            raise HostsUpdatedInterrupt(False)

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if hosts were added or removed. Collective."""
        if self._store.vote(self._asked()):
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
        return {name: value for name, value in vars(self).items() if name not in _OURS}

    def put_back(self, contents: Any) -> None:
        """Restores what `contents` returned, possibly in another process."""
        vars(self).update(contents)
        self.restore()

    # ---- for `run` ---------------------------------------------------------------------------------------------------
    def keep(self) -> bool:
        """Makes the saved state count. Returns True if hosts were added or removed. Collective."""
        if isinstance(self._store, Kept):
            if not isinstance(self, ObjectState):
                self._store.write(self.contents())
            return self._store.seal(self._asked())
        return self._store.vote(self._asked())

    def resume(self) -> bool:
        """Restores the job's last commit. Returns False if there is none. Collective."""
        if not isinstance(self._store, Kept) or (chosen := self._store.choose()) is None:
            return False
        self.put_back(self._store.take(chosen))
        return True

    def _asked(self) -> bool:
        asked = False
        while not self._host_messages.empty():
            self._last_updated_timestamp, _ = self._host_messages.get_nowait()
            asked = True
        return asked


_OURS = frozenset(
    ("_bcast_object", "_rank", "_host_messages", "_last_updated_timestamp", "_reset_callbacks", "_store", "_names")
)


class ObjectState(State):
    """A state of attributes: any values that can be pickled, including arrays and tensors.

    The attributes must be equal on all ranks when they are committed: each host stores those of its
    first rank.

    Args:
        bcast_object, get_rank: as in `State`.
        kwargs: the attributes, with their initial values.
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
        if isinstance(self._store, Private):
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
            missing, more = set(self._names) - set(contents), set(contents) - set(self._names)
            raise ValueError(
                f"the state that was kept is another one: it has no {sorted(missing)}, and has {sorted(more)} that "
                "this one has not. A job, or a folder of snapshots, serves one program"
            )
        for name, value in contents.items():
            setattr(self, name, value)
