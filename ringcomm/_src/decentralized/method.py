"""What methods of exchanging have in common, and what a program sees of one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from ringcomm._src.decentralized.ending import Ending
from ringcomm._src.named.process_sets import ProcessSet

Me = TypeVar("Me")


class Method(ABC):
    """What a method is by itself; each has further ``stepped()``, ``exchanges``, ``updates``, ``stats()``, ``state()``
    and ``load(state)``."""

    def __init__(self, name: str, process_set: ProcessSet, leave: Callable[[], None] = lambda: None) -> None:
        """To be called when it can be finished. ``leave``: as of `Ending`."""
        self.name, self.process_set = name, process_set
        self.steps = 0
        self.distance = 0.0  # before the last exchange
        self.since = time.monotonic()
        self._ending = Ending(name, process_set, leave)

    @property
    def has_own_model(self) -> bool:
        """Whether its model is something of its own: an anchor, a centre, weights that are everybody's."""
        return False

    @property
    def finished(self) -> bool:
        return self._ending.finished

    def finish(self, *how: Any) -> None:
        """This rank makes no more steps. Collective; once more it does nothing."""
        if not self.finished:
            self._finish(*how)
            self._ending.finish()

    @abstractmethod
    def _finish(self, *how: Any) -> None:
        """What is to be done once, before others are told."""

    def exchange_now(self) -> None:  # noqa: B027
        """Where nothing is held back from others there is nothing to do."""

    def global_weights(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _share(self, seconds: float) -> float:
        """Of the time since it was made."""
        return seconds / max(time.monotonic() - self.since, 1e-9)

    def _stats(self, exchanges: int, waited: float, nbytes: int, **more: Any) -> dict[str, Any]:
        """``waited``: seconds."""
        return {"steps": self.steps, "exchanges": exchanges, "waited": self._share(waited), "bytes": nbytes, **more}


class Exchanging:
    """What a program sees of a method, whatever it is of. Use it in a ``with`` statement, or call :meth:`finish`."""

    _method: Any  # a Method

    def global_weights(self) -> AbstractContextManager[None]:
        """Within it the weights are the method's model: its anchor or centre, a store's weights as they are now, or the
        mean of all ranks', for which all must come. Afterwards they are what they were."""
        return self._method.global_weights()

    def finish(self) -> None:
        """This rank makes no more steps: its last ones are exchanged, and it answers the others until all have
        finished. Then all ranks hold the method's model. Collective; once more it does nothing."""
        self._method.finish()

    def __enter__(self: Me) -> Me:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.finish()

    @property
    def updates(self) -> int:
        """Steps of all ranks together, as far as the last exchange told; of a store, those that have been applied: what
        a learning rate may be a function of."""
        return self._method.updates

    def stats(self) -> dict[str, Any]:
        """Of this rank: ``steps``, ``exchanges`` (to a store: pushes), ``waited`` (for others, as a share of the time
        since it was made), ``bytes`` contributed; where weights are exchanged, ``distance`` (root mean square of those
        before the last exchange less those after it); in shared memory, ``broken_locks``, ``lost`` (ranks), and of a
        store ``staleness`` (how many pushes were so many updates late, by shard) and ``dropped``."""
        return self._method.stats()
