"""Neighbourhood collectives: each rank exchanges data with its neighbours in a graph only.

They are all-to-alls with zero rows for ranks that are not neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm._src.arrays import arrays, buffers
from ringcomm._src.arrays.buffers import Buffer
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.arrays.rows import at_least_1d, require_rows
from ringcomm._src.base import arguments
from ringcomm._src.calls import row_calls
from ringcomm._src.communicator.ordered import OrderedCalls
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request

Graph = str | Sequence[Sequence[int]]


def edges_of(graph: Graph, size: int) -> list[list[int]]:
    """Returns the sorted ranks that each rank sends to. ValueError: `graph` is invalid."""
    bits = range((size - 1).bit_length())
    if graph == "ring":
        return [sorted({(rank - 1) % size, (rank + 1) % size} - {rank}) for rank in range(size)]
    if graph == "exponential":
        return [sorted({(rank + (1 << k)) % size for k in bits}) for rank in range(size)]
    if graph == "hypercube" and size & (size - 1) == 0:
        return [sorted(rank ^ (1 << k) for k in bits) for rank in range(size)]
    if isinstance(graph, str):
        raise ValueError(
            f"unknown graph {graph!r} for {size} ranks; known: ring, exponential, and hypercube if size is a power of 2"
        )
    edges = [sorted(arguments.counts(f"neighbours: graph[{rank}]", targets)) for rank, targets in enumerate(graph)]
    invalid = [rank for rank, targets in enumerate(edges) if not set(targets) <= set(range(size))]
    if len(edges) != size or invalid or any(len(set(targets)) < len(targets) for targets in edges):
        raise ValueError(
            f"a graph of {size} ranks must be {size} lists: for each rank, the different ranks it sends to; got {edges}"
        )
    return edges


class Neighbours:
    """Neighbourhood collectives of one graph; :meth:`ringcomm.Communicator.neighbours` returns it.

    Every rank makes the same calls in the same order. This order includes the communicator's other
    calls. Ranks compare the graph at every call.

    Attributes
    ----------
    sends_to
        Ranks that this rank sends to, ascending.
    receives_from
        Ranks that this rank receives from, ascending.
    """

    def __init__(self, comm: OrderedCalls, graph: Graph) -> None:
        self._comm, edges = comm, edges_of(graph, comm.size)
        self.sends_to = tuple(edges[comm.rank])
        self.receives_from = tuple(rank for rank, targets in enumerate(edges) if comm.rank in targets)
        self._numbers = [number for targets in edges for number in (len(targets), *targets)]
        self._text = f"neighbours {edges}"

    def allgather(self, x: Any, out: Any = None, name: str = "") -> Any:
        """Returns the ``x`` of the ranks in ``receives_from``, concatenated along dimension 0.

        Parameters
        ----------
        x
            Array of the same dtype and shape on every rank; a 0-dimensional array counts as one
            row.
        out
            Array for the result; None: a new array.
        """
        return self._comm._run_uncached(self._allgather_request(x, out, name))

    def iallgather(self, x: Any, out: Any = None, name: str = "") -> Handle[Any]:
        """Starts :meth:`allgather` in the background."""
        return self._comm._submit(self._allgather_request(x, out, name))

    def alltoall(self, x: Any, rows: int, out: Any = None, name: str = "") -> Any:
        """Sends ``rows`` rows of ``x`` to each rank of ``sends_to``; returns the rows received.

        The rows of ``x`` are in the order of ``sends_to``, those received in the order of
        ``receives_from``.

        Parameters
        ----------
        x
            Array of ``rows * len(sends_to)`` rows.
        rows : int
            Identical on all ranks.
        out
            Array for the result; None: a new array.
        """
        return self._comm._run_uncached(self._alltoall_request(x, rows, out, name))

    def ialltoall(self, x: Any, rows: int, out: Any = None, name: str = "") -> Handle[Any]:
        """Starts :meth:`alltoall` in the background."""
        return self._comm._submit(self._alltoall_request(x, rows, out, name))

    def _allgather_request(self, x: Any, out: Any, name: str) -> Request:
        source = at_least_1d(arrays.source(x))
        rows, copies = source.shape[0], len(self.sends_to)
        repeated = source.empty((rows * copies, *source.shape[1:]))
        nbytes = source.count * _core.ITEM_SIZES[source.dtype]
        for i in range(copies):
            if repeated.place is not None and source.place is not None:
                repeated.place.copy(repeated.address + i * nbytes, source.place, source.address, nbytes)
            else:
                repeated.kind.assign(repeated.array[i * rows : (i + 1) * rows], source.array)
        if repeated.place is not None:  # the call must read `repeated` after these copies
            repeated = repeated._replace(place=repeated.place._replace(stream=repeated.place.current_stream()))
        return self._request(repeated, rows, out, name or "neighbours.allgather")

    def _alltoall_request(self, x: Any, rows: int, out: Any, name: str) -> Request:
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
        signature = buffers.Signature(
            buffers.signature((shape.hash, rows, *self._numbers)).hash, f"{rows} rows of {shape.text}, {self._text}"
        )
        ranks = range(self._comm.size)
        sent, received = ([rows * (rank in peers) for rank in ranks] for peers in (self.sends_to, self.receives_from))
        return row_calls.alltoallv(source, target, sent, received, signature, call="neighbours.alltoall", name=name)
