"""Computes the new weights of a gossip round from a rank's and its neighbours' weights.

`Gossip` calls ``begin`` and ``complete`` once per round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ringcomm._src.base.wire_formats import WireFormat
from ringcomm._src.core import _core
from ringcomm._src.decentralized.neighbourhood import Neighbourhood
from ringcomm._src.decentralized.replicas import Flat

Read = Callable[[Flat], None]  # copies the weights into an array
_BLOCK = 1 << 14  # elements of a block in weighted_sum


def weighted_sum(out: Flat, parts: list[tuple[float, Flat]]) -> None:
    """Computes the sum of w x, in the given order.

    It works by blocks that fit in caches, so each element is read from memory once.
    """
    scratch = np.empty(min(len(out), _BLOCK), out.dtype)
    weights = [out.dtype.type(weight) for weight, _ in parts]
    for begin in range(0, len(out), _BLOCK):
        block = out[begin : begin + _BLOCK]
        first, *others = (x[begin : begin + _BLOCK] for _, x in parts)
        np.multiply(first, weights[0], out=block)
        for weight, x in zip(weights[1:], others, strict=True):
            np.multiply(x, weight, out=scratch[: len(x)])
            block += scratch[: len(x)]


class Mixing(ABC):
    """Base class of the ways to mix weights in rounds."""

    sent: Flat  # this rank's weights in the last round; valid until the next round begins

    def __init__(self, neighbours: Neighbourhood) -> None:
        self._neighbours = neighbours

    @abstractmethod
    def begin(self, read: Read) -> None:
        """Starts a round: reads the weights and sends them."""

    @abstractmethod
    def complete(self) -> Flat:
        """Waits for the round. Returns the new weights, valid until the next round."""

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Restores what `state` returned."""


class Mix(Mixing):
    """The average x <- sum W x_j. ``rows``: this rank's row of W in each round of a period."""

    def __init__(self, rows: list[Flat], neighbours: Neighbourhood, count: int, dtype: Any) -> None:
        super().__init__(neighbours)
        self._dtype, self._rows = dtype, rows
        self._mixed = np.empty(count, dtype)
        self._row = self._rows[0]

    def begin(self, read: Read) -> None:
        self._row = self._rows[self._neighbours.round % len(self._rows)]
        nbytes = self._mixed.nbytes
        self.sent = self._neighbours.room()[:nbytes].view(self._dtype)
        read(self.sent)
        self._neighbours.begin(nbytes)

    def complete(self) -> Flat:
        """Returns the new weights. Uses this rank's weights for ranks that have finished."""
        parts, own_weight = [], 1.0
        for rank, data in sorted(self._neighbours.complete().items()):
            parts.append((self._row[rank], data.view(self._dtype)))
            own_weight -= self._row[rank]
        weighted_sum(self._mixed, [*parts, (own_weight, self.sent)])
        return self._mixed


class Compressed(Mixing):
    """CHOCO gossip with compression: ranks send the encoded change of their weights.

    Each change is relative to the weights x^ that the neighbours know: x += gamma sum W (x^_j -
    x^_i). A rank stores only the weighted sum of its neighbours' known weights.

    Source: Koloskova, Stich and Jaggi, arXiv:1902.00340; Koloskova et al., arXiv:1907.09356.
    """

    def __init__(self, row: Flat, neighbours: Neighbourhood, x: Flat, wire: WireFormat, gamma: float) -> None:
        """``row``: this rank's row of W. ``x``: the initial weights, equal on all ranks."""
        super().__init__(neighbours)
        self._gamma, self._row = gamma, row
        self._codec = _core.Codec(wire.code, _core.DTYPES.index("float32"), None)
        self._known = x.copy()  # x^ of this rank: the weights that its neighbours know
        self._sum = x.copy()  # sum W x^_j; equals x at first because rows of W sum to 1
        self.sent = np.empty_like(x)

    @staticmethod
    def capacity(wire: WireFormat, count: int) -> int:
        return int(_core.Codec(wire.code, _core.DTYPES.index("float32"), None).capacity(count))

    def begin(self, read: Read) -> None:
        read(self.sent)
        change, room = self.sent - self._known, self._neighbours.room()
        nbytes = self._codec.encode(change.ctypes.data, len(change), room.ctypes.data) if len(change) else 0
        self._known += change  # encode() has replaced the change by its decoded value
        self._sum += np.float32(self._row[self._neighbours.rank]) * change
        self._neighbours.begin(nbytes)

    def complete(self) -> Flat:
        change = np.empty_like(self._known)
        for rank, data in sorted(self._neighbours.complete().items()):
            aligned = data.copy()
            self._codec.decode(aligned.ctypes.data, len(aligned), change.ctypes.data, len(change), False)
            self._sum += np.float32(self._row[rank]) * change
        return np.asarray(self.sent + np.float32(self._gamma) * (self._sum - self._known))

    def state(self) -> dict[str, Any]:
        return {"known": self._known.copy(), "sum": self._sum.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._known[:], self._sum[:] = state["known"], state["sum"]
