"""What a training is made of, saved and brought back as one: Horovod's `State` and `ObjectState`."""

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
    """Base of states. One of your own has `save`, `restore` and `sync`, as in Horovod; what of its attributes can be
    pickled is kept in an elastic job, and `restore` called after they have come back.

    Args:
        bcast_object: a function of (object, root_rank) that gives all ranks the root's; by default ringcomm's.
        get_rank: a function that gives this process's rank.
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
        """To be called, without arguments, when the ranks have changed and the state is restored: to adapt a learning
        rate to the number of ranks, say."""
        self._reset_callbacks.extend(callbacks)

    def commit(self) -> None:
        """Saves, so that training goes on from here if a rank is lost, and looks whether hosts have come or gone.
        Collective: it counts when all ranks have made it.

        Raises:
            HostsUpdatedInterrupt: on all ranks; for `run`.
            RingcommError: on all ranks, if some host has no memory for it; the commit before it stays.
        """
        self.save()
        if self.keep():
            raise HostsUpdatedInterrupt(False)

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if hosts have come or gone. Collective."""
        if self._store.vote(self._asked()):
            raise HostsUpdatedInterrupt(False)

    # ---- for subclasses ----------------------------------------------------------------------------------------------
    @abstractmethod
    def save(self) -> None:
        """Notes the state as it is."""

    @abstractmethod
    def restore(self) -> None:
        """Brings it back as it was last saved."""

    @abstractmethod
    def sync(self) -> None:
        """Gives all ranks the state of rank 0."""

    def reset(self) -> None:  # noqa: B027  most have nothing to do
        """Called when the ranks have changed, before the callbacks."""

    def on_reset(self) -> None:
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any) -> None:
        """Hosts have come or gone, which the next `check_host_updates` tells."""
        self._host_messages.put((timestamp, update_res))

    def contents(self) -> Any:
        """What is to be kept: nested values, arrays, tensors."""
        return {name: value for name, value in vars(self).items() if name not in _OURS}

    def put_back(self, contents: Any) -> None:
        """What `contents` gave, perhaps in another process."""
        vars(self).update(contents)
        self.restore()

    # ---- for `run` ---------------------------------------------------------------------------------------------------
    def keep(self) -> bool:
        """What was saved counts from now on. Whether hosts have come or gone. Collective."""
        if isinstance(self._store, Kept):
            if not isinstance(self, ObjectState):
                self._store.write(self.contents())
            return self._store.seal(self._asked())
        return self._store.vote(self._asked())

    def resume(self) -> bool:
        """Takes up the job's last commit; False if there is none. Collective."""
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
    """Attributes: whatever can be pickled, arrays and tensors among it, the same on all ranks when it is committed (of
    each host the first rank's are kept).

    Args:
        bcast_object, get_rank: as of `State`.
        kwargs: the attributes, with what they are at first.
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
        """Raises ValueError if these are another state's."""
        if set(contents) != set(self._names):
            missing, more = set(self._names) - set(contents), set(contents) - set(self._names)
            raise ValueError(
                f"the state that was kept is another one: it has no {sorted(missing)}, and has {sorted(more)} that "
                "this one has not. A job, or a folder of snapshots, serves one program"
            )
        for name, value in contents.items():
            setattr(self, name, value)
