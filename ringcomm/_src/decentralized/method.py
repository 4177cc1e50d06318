"""The base class of all exchange methods, and the interface that a program uses.

`Method` is the implementation side; `Exchanging` wraps a method for the public classes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from ringcomm._src.decentralized.ending import Ending
from ringcomm._src.named.process_sets import ProcessSet

ExchangingT = TypeVar("ExchangingT")


class Method(ABC):
    """Base class of methods.

    Each subclass also has ``stepped()``, ``exchanges``, ``updates``, ``stats()``, ``state()`` and
    ``load(state)``.
    """

    def __init__(self, name: str, process_set: ProcessSet, leave: Callable[[], None] = lambda: None) -> None:
        """``leave``: as in `Ending`; it may be called from now on."""
        self.name, self.process_set = name, process_set
        self.steps = 0
        self.distance = 0.0  # root mean square change of the weights in the last exchange
        self.since = time.monotonic()
        self._ending = Ending(name, process_set, leave)

    @property
    def has_own_model(self) -> bool:
        """True if the method has a model besides the replicas: anchor, centre or shared weights."""
        return False

    @property
    def finished(self) -> bool:
        return self._ending.finished

    def finish(self, *arguments: Any) -> None:
        """Ends this rank's part, after its last step. Collective. A second call does nothing."""
        if not self.finished:
            self._finish(*arguments)
            self._ending.finish()

    @abstractmethod
    def _finish(self, *arguments: Any) -> None:
        """Does the method's work at the end. Called once."""

    def exchange_now(self) -> None:  # noqa: B027
        """Exchanges everything that is not exchanged yet. The default does nothing."""

    def global_weights(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _share(self, seconds: float) -> float:
        """Converts seconds to a fraction of the time since the method was created."""
        return seconds / max(time.monotonic() - self.since, 1e-9)

    def _stats(self, exchanges: int, waited: float, nbytes: int, **more: Any) -> dict[str, Any]:
        """Returns the statistics that all methods have. ``waited``: in seconds."""
        return {"steps": self.steps, "exchanges": exchanges, "waited": self._share(waited), "bytes": nbytes, **more}


class Exchanging:
    """The interface of a method for programs. Use it in a ``with`` statement, or call `finish`."""

    _method: Any  # a Method

    def global_weights(self) -> AbstractContextManager[None]:
        """Returns a context manager in which the weights are the method's model.

        Leaving the context restores the old weights. The model is the anchor or centre, a store's
        current weights, or the mean of all ranks' weights. For the mean, all ranks must enter the
        context.
        """
        return self._method.global_weights()

    def finish(self) -> None:
        """Ends this rank's part, after its last step. Collective. A second call does nothing.

        Exchanges the last steps, and takes part in the exchanges of other ranks until all have
        finished. Then all ranks hold the method's model.
        """
        self._method.finish()

    def __enter__(self: ExchangingT) -> ExchangingT:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.finish()

    @property
    def updates(self) -> int:
        """Number of steps of all ranks, as of the last exchange. A learning rate may depend on it.

        With a store, it is the number of updates that have been applied.
        """
        return self._method.updates

    def stats(self) -> dict[str, Any]:
        """Returns this rank's statistics.

        - ``steps``; ``exchanges`` (with a store: pushes); ``bytes`` that this rank contributed.
        - ``waited``: time spent waiting for other ranks, as a fraction of the method's lifetime.
        - ``distance`` (methods that exchange weights): the root mean square change of the weights
          in the last exchange.
        - ``broken_locks`` (shared memory); ``lost`` (shared memory, store): the ranks that died.
        - ``staleness`` (store): a dictionary from each delay, in updates, to the number of pushes
          with this delay, over all shards.
        - ``dropped`` (store): the number of gradients that were not applied.
        """
        return self._method.stats()
