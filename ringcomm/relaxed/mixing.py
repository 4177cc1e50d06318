"""What a rank makes of its own weights and its neighbours': averages, compressed ones, push-sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ringcomm import _core
from ringcomm.relaxed.neighbourhood import Neighbourhood
from ringcomm.relaxed.replicas import Flat
from ringcomm.topology import Topology
from ringcomm.wire_formats import WireFormat

Read = Callable[[Flat], None]  # the weights, into an array
_BLOCK = 1 << 14  # elements


def weighted_sum(out: Flat, parts: list[tuple[float, Flat]]) -> None:
    """sum w x, in this order. By blocks whose products caches hold: each element comes from memory once."""
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
    """One way of it, in rounds."""

    sent: Flat  # this rank's weights in the round begun last, until the next begins

    def __init__(self, neighbours: Neighbourhood) -> None:
        self._neighbours = neighbours

    @abstractmethod
    def begin(self, read: Read) -> None:
        """A round."""

    @abstractmethod
    def land(self) -> Flat:
        """Waits for it: the new weights, until the next."""

    def reset(self) -> None:  # noqa: B027
        """All ranks hold the same."""

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """What `state` gave."""


class Mix(Mixing):
    """x <- sum W x_j, of ``count`` weights."""

    def __init__(self, topology: Topology, neighbours: Neighbourhood, count: int, dtype: Any) -> None:
        super().__init__(neighbours)
        self._dtype, size = dtype, neighbours.size
        self._rows = [topology.matrix(size, t)[neighbours.rank] for t in range(topology.period(size))]
        self._mixed = np.empty(count, dtype)
        self._row = self._rows[0]

    def begin(self, read: Read) -> None:
        self._row = self._rows[self._neighbours.round % len(self._rows)]
        nbytes = self._mixed.nbytes
        self.sent = self._neighbours.room()[:nbytes].view(self._dtype)
        read(self.sent)
        self._neighbours.begin(nbytes, self._neighbours.told())

    def land(self) -> Flat:
        """The weights of those who have finished are this rank's own."""
        parts, rest = [], 1.0
        for rank, (data, _) in sorted(self._neighbours.land().items()):
            parts.append((self._row[rank], data.view(self._dtype)))
            rest -= self._row[rank]
        weighted_sum(self._mixed, [*parts, (rest, self.sent)])
        return self._mixed


class Compressed(Mixing):
    """CHOCO: what travels is how the weights differ from what the neighbours know of them, encoded; x += gamma sum W
    (x^_j - x^_i). Of the neighbours' known weights only the weighted sum is kept.

    Source: Koloskova, Stich and Jaggi, arXiv:1902.00340; Koloskova et al., arXiv:1907.09356.
    """

    def __init__(self, topology: Topology, neighbours: Neighbourhood, x: Flat, wire: WireFormat, gamma: float) -> None:
        """``x``: weights that all ranks know, for they have the same."""
        super().__init__(neighbours)
        if topology.period(neighbours.size) != 1:
            raise ValueError(f"compression needs neighbours that stay: topology {topology.name!r} changes them")
        self._gamma, self._row = gamma, topology.matrix(neighbours.size)[neighbours.rank]
        self._codec = _core.Codec(wire.code, _core.DTYPES.index("float32"), None)
        self._known = x.copy()  # x^ of this rank
        self._sum = x.copy()  # sum W x^_j: rows of W sum to 1
        self.sent = np.empty_like(x)

    @staticmethod
    def capacity(wire: WireFormat, count: int) -> int:
        return int(_core.Codec(wire.code, _core.DTYPES.index("float32"), None).capacity(count))

    def begin(self, read: Read) -> None:
        read(self.sent)
        change, room = self.sent - self._known, self._neighbours.room()
        nbytes = self._codec.encode(change.ctypes.data, len(change), room.ctypes.data) if len(change) else 0
        self._known += change  # which is now what it decodes to
        self._sum += np.float32(self._row[self._neighbours.rank]) * change
        self._neighbours.begin(nbytes, self._neighbours.told())

    def land(self) -> Flat:
        change = np.empty_like(self._known)
        for rank, (data, _) in sorted(self._neighbours.land().items()):
            aligned = data.copy()
            self._codec.decode(aligned.ctypes.data, len(aligned), change.ctypes.data, len(change), False)
            self._sum += np.float32(self._row[rank]) * change
        return np.asarray(self.sent + np.float32(self._gamma) * (self._sum - self._known))

    def state(self) -> dict[str, Any]:
        return {"known": self._known.copy(), "sum": self._sum.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._known[:], self._sum[:] = state["known"], state["sum"]


class PushSum(Mixing):
    """Ranks send shares of what they have, and of a weight that begins with 1; what they train with is the quotient. It
    tends to the mean on any graph, also where edges go one way.

    Source: Kempe, Dobra and Gehrke, FOCS 2003; Assran et al. (SGP), arXiv:1811.10792.
    """

    def __init__(self, neighbours: Neighbourhood, count: int, dtype: Any) -> None:
        super().__init__(neighbours)
        self._count, self._dtype, self.weight = count, dtype, 1.0
        self._x: Flat | None = None  # the numerator,
        self._z: Flat | None = None  # and the quotient, as they were after the last round

    def begin(self, read: Read) -> None:
        z = np.empty(self._count, self._dtype)
        read(z)
        if self._x is None or self._z is None:
            x = z * np.asarray(self.weight, z.dtype)
        else:
            # Ranks that finish take some of the weights' sum with them: steps must not grow for that.
            by = min(self.weight, 1.0) if self._neighbours.some_gone else 1.0
            x = self._x + (z - self._z) * np.asarray(by, z.dtype)
        told = self._neighbours.told()
        share = 1 / (1 + len(told))  # everybody who hears gets as much
        self._x, self.sent = x * np.asarray(share, x.dtype), z
        self.weight *= share
        self._neighbours.room()[: self._x.nbytes].view(self._dtype)[:] = self._x
        self._neighbours.begin(self._x.nbytes, told, self.weight)

    def land(self) -> Flat:
        assert self._x is not None
        for _, (data, weight) in sorted(self._neighbours.land().items()):
            self._x = self._x + data.view(self._dtype)
            self.weight += weight
        self._z = np.asarray(self._x / self.weight, self._dtype)
        return self._z.copy()

    def reset(self) -> None:
        self.weight, self._x, self._z = 1.0, None, None

    def state(self) -> dict[str, Any]:
        return {"weight": self.weight, "x": self._x, "z": self._z}

    def load(self, state: Mapping[str, Any]) -> None:
        self.weight, self._x, self._z = state["weight"], state["x"], state["z"]
