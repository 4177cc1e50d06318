"""The named operations: Horovod's functions, defined for arrays and for the tensors of frameworks.

Operations of different ranks are matched by ``name``; ranks may submit them in any order. Without a
name, operations of one kind are matched in the order of submission. All functions take the arrays
of :mod:`ringcomm._src.arrays.arrays`. Results are new arrays of the same kind unless the function's
name ends in an underscore (in place). The ``_async`` forms return a handle for ``poll`` and
``synchronize``; their arrays must not be used before the operation is done.

``algorithm`` overrides the choice of an algorithm: a built-in of the collective ("ring", "tree",
...), "two_level:ring" and so on, or "shared". All ranks must pass the same algorithm.

``priority`` orders operations that every rank has submitted: those of higher priority run first. An
operation that runs is not interrupted. If ranks pass different priorities, the highest counts.

All functions raise, on every rank, ``MismatchError`` (ranks disagree on dtype, shape, op, root,
algorithm or kind under one name; the job continues), ``RankLeftError`` (a rank that is needed has
shut down, or its script has ended) and ``PeerLostError`` (a rank died; fatal). On this rank they
raise ``ValueError`` before ``init()``, if an operation of the same name is in flight, if the
algorithm is unknown, or if this rank is not in ``process_set``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringcomm._src.arrays import arrays
from ringcomm._src.arrays.forms import blocking_form
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.core._core import Request
from ringcomm._src.named import named
from ringcomm._src.named.graph_ops import root_in
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.named.reductions import Reductions, T

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]


class Operations(Reductions[T]):
    """All named operations. A binding exports the methods of one instance for its tensors."""

    # ---- requests ----------------------------------------------------------------------------------------------------
    def allgather_request(self, tensor: T) -> Request:
        self._check(tensor, None)
        return row_calls.allgather_any(arrays.source(tensor))

    def broadcast_request(self, tensor: T, root_rank: int, process_set: ProcessSet, in_place: bool = False) -> Request:
        """Builds a broadcast; `root_rank` is a rank of the world, as in Horovod."""
        self._check(tensor, None)
        root = root_in(process_set, root_rank)
        return calls.broadcast(*arrays.pair(tensor, tensor if in_place else None), root)

    def alltoall_request(self, tensor: T, splits: Any, process_set: ProcessSet) -> Request:
        self._check(tensor, None)
        process_set.set_id()
        return row_calls.alltoall_any(arrays.source(tensor), splits, process_set.size())

    # ---- blocking forms with new results: bindings with gradients override them --------------------------------------
    def run_allgather(
        self, grouped: bool, name: str | None, process_set: ProcessSet, algorithm: str | None, *tensors: T
    ) -> Any:
        if grouped:
            return tuple(self.grouped_allgather_async(tensors, name, process_set, algorithm).wait())
        return self.allgather_async(tensors[0], name, process_set, algorithm).wait()

    def run_broadcast(
        self, root_rank: int, name: str | None, process_set: ProcessSet, algorithm: str | None, tensor: T
    ) -> T:
        return self.broadcast_async(tensor, root_rank, name, process_set, algorithm).wait()

    def run_alltoall(
        self, splits: Any, name: str | None, process_set: ProcessSet, algorithm: str | None, tensor: T
    ) -> Any:
        output, received = self.alltoall_async(tensor, splits, name, process_set, algorithm).wait()
        return output if splits is None else (output, received)

    # ---- operations --------------------------------------------------------------------------------------------------
    def allgather_async(
        self,
        tensor: T,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[T]:
        """Starts :meth:`allgather` in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> handle = ringcomm.allgather_async(np.array([ringcomm.rank()]), name="ranks")
        >>> ringcomm.synchronize(handle).tolist()
        [0, 1]
        """
        return named.submit(process_set, self.allgather_request(tensor), name, algorithm, priority)

    def allgather(
        self,
        tensor: T,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> T:
        """Returns every rank's ``tensor``, concatenated along the first dimension in rank order.

        Parameters
        ----------
        tensor : array or tensor
            Any dtype. All dimensions except the first, and the dtype, are the same on every rank. A
            0-dimensional tensor counts as one row.
        name : str | None
            Name of the operation. Calls with the same name on different ranks belong together.
            None: unnamed calls belong together in the order in which each rank makes them.
        process_set : ProcessSet
            The ranks that take part.
        algorithm : str | None
            Name of the algorithm; None: chosen automatically.

        Returns
        -------
        array or tensor
            A new array of the same dtype.

        Raises
        ------
        ringcomm.MismatchError
            Dtypes, or dimensions other than the first, differ between ranks.

        Examples
        --------
        >>> ringcomm.init()
        >>> ringcomm.allgather(np.full(1 + ringcomm.rank(), ringcomm.rank())).tolist()
        [0, 1, 1]
        """
        return self.run_allgather(False, name, process_set, algorithm, tensor)

    def grouped_allgather_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[list[T]]:
        """Starts :meth:`grouped_allgather` in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> mine = np.array([ringcomm.rank()])
        >>> handle = ringcomm.grouped_allgather_async([mine, -mine], name="pair")
        >>> [y.tolist() for y in ringcomm.synchronize(handle)]
        [[0, 1], [0, -1]]
        """
        process_set.set_id()  # raises before requests are built
        return named.submit_group(
            process_set, [self.allgather_request(tensor) for tensor in tensors], name, algorithm, priority
        )

    def grouped_allgather(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> list[T]:
        """Performs :meth:`allgather` of several arrays as one group, in one operation.

        Parameters
        ----------
        tensors : Sequence[array or tensor]
            Arrays as for :meth:`allgather`; the other arguments are those of :meth:`allgather`.

        Returns
        -------
        list[array or tensor]
            The results, in the order of ``tensors``.

        Examples
        --------
        >>> ringcomm.init()
        >>> mine = np.array([ringcomm.rank()])
        >>> [y.tolist() for y in ringcomm.grouped_allgather([mine, -mine])]
        [[0, 1], [0, -1]]
        """
        return list(self.run_allgather(True, name, process_set, algorithm, *tensors))

    def broadcast_async(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[T]:
        """Starts :meth:`broadcast` in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> handle = ringcomm.broadcast_async(np.array([ringcomm.rank()]), root_rank=1, name="root")
        >>> ringcomm.synchronize(handle).tolist()
        [1]
        """
        return named.submit(
            process_set, self.broadcast_request(tensor, root_rank, process_set), name, algorithm, priority
        )

    def broadcast(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> T:
        """Returns the values of ``root_rank`` on every rank.

        Parameters
        ----------
        tensor : array or tensor
            Any dtype; dtype and shape are the same on every rank.
        root_rank : int
            Rank of the world that provides the values.
        name : str | None
            Name of the operation. Calls with the same name on different ranks belong together.
            None: unnamed calls belong together in the order in which each rank makes them.
        process_set : ProcessSet
            The ranks that take part.
        algorithm : str | None
            Name of the algorithm; None: chosen automatically.

        Returns
        -------
        array or tensor
            A new array of the same dtype and shape.

        Raises
        ------
        ringcomm.MismatchError
            Dtypes, shapes or roots differ between ranks.
        ringcomm.RankJoinedError
            The root has joined.
        ValueError
            The root is not in the process set.

        Examples
        --------
        >>> ringcomm.init()
        >>> ringcomm.broadcast(np.array([ringcomm.rank()]), root_rank=1).tolist()
        [1]
        """
        return self.run_broadcast(root_rank, name, process_set, algorithm, tensor)

    def broadcast_async_(
        self,
        tensor: T,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[T]:
        """Starts :meth:`broadcast` in place and in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``. Do not use ``tensor`` before the operation is done.

        Examples
        --------
        >>> ringcomm.init()
        >>> x = np.array([ringcomm.rank()])
        >>> handle = ringcomm.broadcast_async_(x, root_rank=1, name="weights")
        >>> ringcomm.synchronize(handle) is x, x.tolist()
        (True, [1])
        """
        return named.submit(
            process_set, self.broadcast_request(tensor, root_rank, process_set, True), name, algorithm, priority
        )

    broadcast_ = blocking_form(
        broadcast_async_,
        """Performs :meth:`broadcast` in place; returns ``tensor``.

        Examples
        --------
        >>> ringcomm.init()
        >>> x = np.array([ringcomm.rank()])
        >>> ringcomm.broadcast_(x, root_rank=1) is x, x.tolist()
        (True, [1])
        """,
        "T",
    )

    def alltoall_async(
        self,
        tensor: T,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[tuple[T, T]]:
        """Starts :meth:`alltoall` in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``. The result is the pair (array, received splits).

        Examples
        --------
        >>> ringcomm.init()
        >>> handle = ringcomm.alltoall_async(np.arange(2), name="rows")
        >>> received, splits = ringcomm.synchronize(handle)
        >>> len(received), splits.tolist()
        (2, [1, 1])
        """
        return named.submit(process_set, self.alltoall_request(tensor, splits, process_set), name, algorithm, priority)

    def alltoall(
        self,
        tensor: T,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> Any:
        """Sends part q of ``tensor`` to rank q of the set, and returns the received parts.

        Parameters
        ----------
        tensor : array or tensor
            Parts are consecutive rows along the first dimension. The dtype and the other dimensions
            are the same on every rank; any dtype is allowed.
        splits : Sequence[int] | array | None
            Number of rows to send to each rank, with a sum of at most the first dimension; None:
            equal parts.
        name : str | None
            Name of the operation. Calls with the same name on different ranks belong together.
            None: unnamed calls belong together in the order in which each rank makes them.
        process_set : ProcessSet
            The ranks that take part.
        algorithm : str | None
            Name of the algorithm; None: chosen automatically.

        Returns
        -------
        array or tensor, or tuple
            The received parts in rank order; with ``splits``, the pair (array, number of rows from
            each rank as int32).

        Raises
        ------
        ringcomm.MismatchError
            Dtypes, or dimensions other than the first, differ between ranks.
        ValueError
            ``splits`` or the first dimension does not fit the number of ranks.

        Examples
        --------
        >>> ringcomm.init()
        >>> rows = ringcomm.alltoall(np.array([0, 1]))     # row q is sent to rank q
        >>> rows.tolist() == [ringcomm.rank()] * 2
        True
        >>> rows, counts = ringcomm.alltoall(np.array([5, 6, 7]), splits=[1, 2])
        >>> counts.tolist() == [1 + ringcomm.rank()] * 2
        True
        """
        return self.run_alltoall(splits, name, process_set, algorithm, tensor)

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Blocks until every rank of the set has called it.

        Parameters
        ----------
        process_set : ProcessSet
            The ranks that wait for each other.

        Examples
        --------
        >>> ringcomm.init()
        >>> ringcomm.barrier()
        """
        named.submit(process_set, calls.barrier()).wait()


# ---- on arrays -------------------------------------------------------------------------------------------------------
_arrays: Operations[Any] = Operations()
allgather = _arrays.allgather
allgather_async = _arrays.allgather_async
allreduce = _arrays.allreduce
allreduce_ = _arrays.allreduce_
allreduce_async = _arrays.allreduce_async
allreduce_async_ = _arrays.allreduce_async_
alltoall = _arrays.alltoall
alltoall_async = _arrays.alltoall_async
barrier = _arrays.barrier
broadcast = _arrays.broadcast
broadcast_ = _arrays.broadcast_
broadcast_async = _arrays.broadcast_async
broadcast_async_ = _arrays.broadcast_async_
grouped_allgather = _arrays.grouped_allgather
grouped_allgather_async = _arrays.grouped_allgather_async
grouped_allreduce = _arrays.grouped_allreduce
grouped_allreduce_ = _arrays.grouped_allreduce_
grouped_allreduce_async = _arrays.grouped_allreduce_async
grouped_allreduce_async_ = _arrays.grouped_allreduce_async_
grouped_reducescatter = _arrays.grouped_reducescatter
grouped_reducescatter_async = _arrays.grouped_reducescatter_async
reducescatter = _arrays.reducescatter
reducescatter_async = _arrays.reducescatter_async


# ---- handles ---------------------------------------------------------------------------------------------------------
def poll(handle: Handle[Any]) -> bool:
    """Returns True if the operation is done, so that :func:`synchronize` would not block.

    Examples
    --------
    >>> ringcomm.init()
    >>> handle = ringcomm.allreduce_async(np.ones(2), name="polled")
    >>> while not ringcomm.poll(handle):
    ...     pass  # compute meanwhile
    >>> ringcomm.synchronize(handle).tolist()
    [1.0, 1.0]
    """
    return handle.test()


def synchronize(handle: Handle[Any]) -> Any:
    """Blocks until the operation is done, and returns its result or raises its error.

    Examples
    --------
    >>> ringcomm.init()
    >>> handle = ringcomm.allreduce_async(np.ones(2), name="gradient", op=ringcomm.Sum)
    >>> ringcomm.synchronize(handle).tolist()
    [2.0, 2.0]
    """
    return handle.wait()
