"""What a rank makes of its own weights and its neighbours': averages, compressed ones, push-sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ringcomm import _core
from ringcomm.relaxed.host_neighbourhood import HostNeighbours
from ringcomm.relaxed.neighbourhood import Neighbours
from ringcomm.relaxed.replicas import Flat
from ringcomm.topology import Topology
from ringcomm.wire_formats import WireFormat

Talk = Neighbours | HostNeighbours


class Mix:
    """What a rank makes of its own weights and its neighbours'."""

    def __init__(self, topology: Topology, neighbours: Talk, dtype: Any) -> None:
        self._neighbours, self._dtype = neighbours, dtype
        size, rank = neighbours.size, neighbours.rank
        self._rows = [topology.matrix(size, t)[rank] for t in range(topology.period(size))]
        self._sent: Flat | None = None
        self._row = self._rows[0]

    def begin(self, x: Flat) -> None:
        self._row = self._rows[self._neighbours.round % len(self._rows)]
        self._sent = x.copy()
        self._neighbours.begin(self._sent.view(np.uint8), self._neighbours.told())

    def land(self) -> Flat:
        """sum W x_j. The weights of those who have finished are this rank's own."""
        assert self._sent is not None
        mixed, rest, number = np.zeros_like(self._sent), 1.0, self._sent.dtype.type
        for rank, (data, _) in sorted(self._neighbours.land().items()):
            mixed += number(self._row[rank]) * data.view(self._dtype)
            rest -= self._row[rank]
        mixed += number(rest) * self._sent
        return mixed

    def sent(self) -> Flat:
        assert self._sent is not None
        return self._sent

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None: ...

    def reset(self) -> None: ...


class Compressed:
    """CHOCO: what travels is how the weights differ from what the neighbours know of them, encoded; x += gamma sum W
    (x^_j - x^_i). Of the neighbours' known weights only the weighted sum is kept.

    Source: Koloskova, Stich and Jaggi, arXiv:1902.00340; Koloskova et al., arXiv:1907.09356.
    """

    def __init__(self, topology: Topology, neighbours: Talk, count: int, wire: WireFormat, gamma: float) -> None:
        if topology.period(neighbours.size) != 1:
            raise ValueError(f"compression needs neighbours that stay: topology {topology.name!r} changes them")
        self._neighbours, self._gamma = neighbours, gamma
        self._row = topology.matrix(neighbours.size)[neighbours.rank]
        self._codec = _core.Codec(wire.code, _core.DTYPES.index("float32"), None)
        self._known = np.zeros(count, np.float32)  # x^ of this rank
        self._sum = np.zeros(count, np.float32)  # sum W x^_j
        self._wire = np.empty(self.capacity(wire, count), np.uint8)
        self._x = self._known

    def begin_with(self, x: Flat) -> None:
        """Weights that all ranks know, for they have the same."""
        self._known[:] = x
        self._sum[:] = x  # rows of W sum to 1

    @staticmethod
    def capacity(wire: WireFormat, count: int) -> int:
        return int(_core.Codec(wire.code, _core.DTYPES.index("float32"), None).capacity(count))

    def begin(self, x: Flat) -> None:
        self._x = x.copy()
        change = x - self._known
        nbytes = self._codec.encode(change.ctypes.data, len(change), self._wire.ctypes.data) if len(x) else 0
        self._known += change  # which is now what it decodes to
        self._sum += np.float32(self._row[self._neighbours.rank]) * change
        self._neighbours.begin(self._wire[:nbytes].copy(), self._neighbours.told())

    def land(self) -> Flat:
        change = np.empty_like(self._known)
        for rank, (data, _) in sorted(self._neighbours.land().items()):
            aligned = data.copy()
            self._codec.decode(aligned.ctypes.data, len(aligned), change.ctypes.data, len(change), False)
            self._sum += np.float32(self._row[rank]) * change
        return np.asarray(self._x + np.float32(self._gamma) * (self._sum - self._known))

    def sent(self) -> Flat:
        return self._x

    def state(self) -> dict[str, Any]:
        return {"known": self._known.copy(), "sum": self._sum.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._known[:], self._sum[:] = state["known"], state["sum"]

    def reset(self) -> None: ...


class PushSum:
    """Ranks send shares of what they have, and of a weight that begins with 1; what they train with is the quotient. It
    tends to the mean on any graph, also where edges go one way.

    Source: Kempe, Dobra and Gehrke, FOCS 2003; Assran et al. (SGP), arXiv:1811.10792.
    """

    def __init__(self, neighbours: Talk, dtype: Any) -> None:
        self._neighbours, self._dtype = neighbours, dtype
        self.weight = 1.0
        self._x: Flat | None = None  # the numerator,
        self._z: Flat | None = None  # and the quotient, as they were after the last round

    def begin(self, z: Flat) -> None:
        if self._x is None or self._z is None:
            x = z * np.asarray(self.weight, z.dtype)
        else:
            # Ranks that finish take some of the weights' sum with them: steps must not grow for that.
            by = min(self.weight, 1.0) if self._neighbours.some_gone else 1.0
            x = self._x + (z - self._z) * np.asarray(by, z.dtype)
        told = self._neighbours.told()
        share = 1 / (1 + len(told))  # everybody who hears gets as much
        self._x, self._sent = x * np.asarray(share, x.dtype), z
        self.weight *= share
        self._neighbours.begin(self._x.view(np.uint8), told, self.weight)

    def land(self) -> Flat:
        assert self._x is not None
        for _, (data, weight) in sorted(self._neighbours.land().items()):
            self._x = self._x + data.view(self._dtype)
            self.weight += weight
        self._z = np.asarray(self._x / self.weight, self._dtype)
        return self._z.copy()

    def sent(self) -> Flat:
        return self._sent

    def reset(self) -> None:
        """All ranks hold the same."""
        self.weight, self._x, self._z = 1.0, None, None

    def state(self) -> dict[str, Any]:
        return {"weight": self.weight, "x": self._x, "z": self._z}

    def load(self, state: Mapping[str, Any]) -> None:
        self.weight, self._x, self._z = state["weight"], state["x"], state["z"]
