"""Neighbourhood collectives: each rank exchanges data with its neighbours in a graph only.

They are all-to-alls with zero rows for ranks that are not neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm._src.arrays import arrays, buffers
from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.arrays.rows import require_rows, with_rows
from ringcomm._src.base import arguments
from ringcomm._src.calls import row_calls
from ringcomm._src.communicator.ordered import OrderedCalls
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

Graph = str | Sequence[Sequence[int]]


def edges_of(graph: Graph, size: int) -> list[list[int]]:
    """Returns the sorted ranks that each rank sends to. Raises ValueError unless `graph` is a graph of `size` ranks."""
    bits = range((size - 1).bit_length())
    if graph == "ring":
        return [sorted({(rank - 1) % size, (rank + 1) % size} - {rank}) for rank in range(size)]
    if graph == "exponential":
        return [sorted({(rank + (1 << k)) % size for k in bits}) for rank in range(size)]
    if graph == "hypercube" and size & (size - 1) == 0:
        return [sorted(rank ^ (1 << k) for k in bits) for rank in range(size)]
    if isinstance(graph, str):
        raise ValueError(
            f"no graph {graph!r} of {size} ranks: there are ring, exponential, and for powers of two hypercube"
        )
    edges = [sorted(arguments.counts(f"neighbours: graph[{rank}]", others)) for rank, others in enumerate(graph)]
    wrong = [rank for rank, others in enumerate(edges) if not set(others) <= set(range(size))]
    if len(edges) != size or wrong or any(len(set(others)) < len(others) for others in edges):
        raise ValueError(
            f"a graph of {size} ranks is {size} lists, for each rank, of different ranks that it sends to; got {edges}"
        )
    return edges


class Neighbours:
    """Neighbourhood collectives of one graph; :meth:`ringcomm.Communicator.neighbours` returns it.

    Every rank makes the same calls in the same order; they are part of the order of the communicator's calls. Ranks
    compare the graph at every call.

    Attributes:
        sends_to: ranks that this rank sends to, ascending.
        receives_from: ranks that this rank receives from, ascending.
    """

    def __init__(self, comm: OrderedCalls, graph: Graph) -> None:
        self._comm, edges = comm, edges_of(graph, comm.size)
        self.sends_to = tuple(edges[comm.rank])
        self.receives_from = tuple(rank for rank, others in enumerate(edges) if comm.rank in others)
        self._numbers = [number for others in edges for number in (len(others), *others)]
        self._text = f"neighbours {edges}"

    def allgather(self, x: Any, out: Any = None, name: str = "") -> Any:
        """Returns the ``x`` of the ranks in ``receives_from``, concatenated along the first dimension.

        Args:
            x: array of the same dtype and shape on every rank; a 0-dimensional array counts as one row.
            out: array for the result; None: a new array.
        """
        return self._comm._once(self._gathering(x, out, name))

    def iallgather(self, x: Any, out: Any = None, name: str = "") -> Handle[Any]:
        """Starts :meth:`allgather` in the background."""
        return self._comm._submit(self._gathering(x, out, name))

    def alltoall(self, x: Any, rows: int, out: Any = None, name: str = "") -> Any:
        """Sends ``rows`` rows of ``x`` to each rank of ``sends_to``; returns the rows received.

        The rows of ``x`` are in the order of ``sends_to``, those received in the order of ``receives_from``.

        Args:
            x: array of ``rows * len(sends_to)`` rows.
            rows: identical on all ranks.
            out: array for the result; None: a new array.
        """
        return self._comm._once(self._exchanging(x, rows, out, name))

    def ialltoall(self, x: Any, rows: int, out: Any = None, name: str = "") -> Handle[Any]:
        """Starts :meth:`alltoall` in the background."""
        return self._comm._submit(self._exchanging(x, rows, out, name))

    def _gathering(self, x: Any, out: Any, name: str) -> Request:
        one = with_rows(arrays.source(x))
        rows, copies = one.shape[0], len(self.sends_to)
        every = one.empty((rows * copies, *one.shape[1:]))
        nbytes = one.count * _core.ITEM_SIZES[one.dtype]
        for i in range(copies):
            if every.place is not None and one.place is not None:
                every.place.copy(every.address + i * nbytes, one.place, one.address, nbytes)
            else:
                every.kind.assign(every.array[i * rows : (i + 1) * rows], one.array)
        if every.place is not None:  # the call must read them after these copies
            every = every._replace(place=every.place._replace(stream=every.place.now()))
        return self._request(every, rows, out, name or "neighbours.allgather")

    def _exchanging(self, x: Any, rows: int, out: Any, name: str) -> Request:
        source = arrays.source(x)
        require_rows("neighbours.alltoall", source)
        rows = arguments.integer("neighbours.alltoall: rows", rows)
        if rows < 0 or source.shape[0] != rows * len(self.sends_to):
            raise ValueError(
                f"neighbours.alltoall needs {rows} rows for each of {len(self.sends_to)} neighbours; "
                f"the array has {source.shape[0]}"
            )
        return self._request(source, rows, out, name or "neighbours.alltoall")

    def _request(self, source: Buffer, rows: int, out: Any, name: str) -> Request:
        target = arrays.result(out, source, (rows * len(self.receives_from), *source.shape[1:]))
        shape = buffers.signature_of(source, 1)
        sign = buffers.Signature(
            buffers.signature((shape.hash, rows, *self._numbers)).hash, f"{rows} rows of {shape.text}, {self._text}"
        )
        ranks = range(self._comm.size)
        sent, received = ([rows * (rank in some) for rank in ranks] for some in (self.sends_to, self.receives_from))
        return row_calls.between(source, target, sent, received, sign, call="neighbours.alltoall", name=name)
