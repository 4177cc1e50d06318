"""The named reductions, allreduce and reducescatter, for arrays and the tensors of frameworks.

:mod:`ringcomm._src.named.collectives` documents what all named operations have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ringcomm._src.arrays import arrays, buffers
from ringcomm._src.arrays.forms import blocking_form
from ringcomm._src.arrays.handles import Handle
from ringcomm._src.base.ops import Average, chosen_op, core_op
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.compression.compression import NoneCompressor
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request
from ringcomm._src.named import named
from ringcomm._src.named.process_sets import ProcessSet, global_process_set

T = TypeVar("T")


class Reduction(NamedTuple):
    """Parameters of a reduction, and the process set that performs it."""

    op: Any
    prescale: float
    postscale: float
    process_set: ProcessSet
    algorithm: str | None = None
    wire: Any = None  # wire format
    feedback: _core.Feedback | None = None  # residual of one array
    priority: int = 0

    def allreduce(self, source: buffers.Buffer, target: buffers.Buffer) -> Request:
        """Builds an allreduce; `target` may be `source`."""
        return calls.allreduce(
            source, target, self.op, self.wire, pre=self.prescale, post=self.postscale, feedback=self.feedback
        )

    def reducescatter(self, source: buffers.Buffer) -> Request:
        """Builds a reducescatter: rank r of the set gets part r along the first dimension."""
        rank, size = self.process_set.require_rank(), self.process_set.size()
        return row_calls.reducescatter(
            source, None, self.op, rank, size, self.wire, pre=self.prescale, post=self.postscale
        )

    def submit(self, request: Request, name: str | None) -> Handle[Any]:
        return named.submit(self.process_set, request, name, self.algorithm, self.priority)

    def submit_group(self, requests: Sequence[Request], name: str | Sequence[str] | None) -> Handle[list[Any]]:
        return named.submit_group(self.process_set, requests, name, self.algorithm, self.priority)


def _accept_all(tensor: Any, op: Any = None) -> None:
    """Accepts every tensor: the request itself raises for unsupported dtypes."""


class Reductions(Generic[T]):
    """The named reductions; the subclass `collectives.Operations` adds the other operations.

    ``check(tensor, op)`` raises for tensors that the binding does not accept; op is None if nothing
    is reduced.
    """

    def __init__(self, check: Callable[[Any, Any], None] = _accept_all) -> None:
        self._check = check

    # ---- requests ----------------------------------------------------------------------------------------------------
    def allreduce_request(self, reduction: Reduction, tensor: T, in_place: bool = False) -> Request:
        self._check(tensor, reduction.op)
        return reduction.allreduce(*arrays.pair(tensor, tensor if in_place else None))

    def reducescatter_request(self, reduction: Reduction, tensor: T) -> Request:
        self._check(tensor, reduction.op)
        return reduction.reducescatter(arrays.source(tensor))

    def _group(
        self, reduction: Reduction, name: str | None, make: Callable[..., Request], tensors: Sequence[T], *options: Any
    ) -> Handle[list[T]]:
        reduction.process_set.set_id()  # raises before requests are built
        return reduction.submit_group([make(reduction, tensor, *options) for tensor in tensors], name)

    # ---- blocking forms with new results: bindings with gradients override them --------------------------------------
    def run_allreduce(self, grouped: bool, name: str | None, reduction: Reduction, *tensors: T) -> Any:
        return self._run(grouped, name, reduction, self.allreduce_request, tensors)

    def run_reducescatter(self, grouped: bool, name: str | None, reduction: Reduction, *tensors: T) -> Any:
        return self._run(grouped, name, reduction, self.reducescatter_request, tensors)

    def _run(
        self, grouped: bool, name: str | None, reduction: Reduction, make: Callable[..., Request], tensors: Sequence[T]
    ) -> Any:
        if grouped:
            return tuple(self._group(reduction, name, make, tensors).wait())
        return reduction.submit(make(reduction, tensors[0]), name).wait()

    def _compressed(
        self,
        run: Callable[..., Any],
        grouped: bool,
        tensors: Sequence[T],
        name: str | None,
        compression: Any,
        reduction: Reduction,
    ) -> Any:
        result = run(grouped, name, reduction._replace(wire=compression), *tensors)
        return list(result) if grouped else result

    # ---- allreduce ---------------------------------------------------------------------------------------------------
    def allreduce_async(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[T]:
        """Starts :meth:`allreduce` in the background.

        Parameters
        ----------
        priority : int
            Among the operations that every rank has submitted and that do not run, those of higher
            priority run first. Ranks may pass different values: the highest counts. Give the
            gradients that the next step uses first the highest priority. The other asynchronous
            operations accept it too. All other arguments are those of :meth:`allreduce`.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> handle = ringcomm.allreduce_async(np.ones(2), name="gradient", op=ringcomm.Sum)
        >>> ringcomm.synchronize(handle).tolist()
        [2.0, 2.0]
        >>> first = ringcomm.allreduce_async(np.ones(2), name="layer1", op=ringcomm.Sum, priority=1)
        >>> ringcomm.synchronize(first).tolist()
        [2.0, 2.0]
        """
        reduction = Reduction(
            chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm, priority=priority
        )
        return reduction.submit(self.allreduce_request(reduction, tensor), name)

    def allreduce_async_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[T]:
        """Starts :meth:`allreduce` in place and in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``. Do not use ``tensor`` before the operation is done.

        Examples
        --------
        >>> ringcomm.init()
        >>> x = np.ones(2)
        >>> handle = ringcomm.allreduce_async_(x, name="gradient", op=ringcomm.Sum)
        >>> ringcomm.synchronize(handle) is x, x.tolist()
        (True, [2.0, 2.0])
        """
        if algorithm is None and not priority:
            handle = process_set.cached_calls.try_cached(name, tensor, op, average, prescale_factor, postscale_factor)
            if handle is not None:
                return handle
        reduction = Reduction(
            chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm, priority=priority
        )
        request = self.allreduce_request(reduction, tensor, True)
        if algorithm is not None or average is not None or priority:
            return reduction.submit(request, name)
        return named.submit_first(process_set, request, name, tensor, op, prescale_factor, postscale_factor)

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> T:
        """Returns the reduction of every rank's ``tensor``, on every rank of ``process_set``.

        Parameters
        ----------
        tensor : array or tensor
            Any dtype with arithmetic (float16 and bool too); dtype and shape are the same on every
            rank.
        average : bool | None
            Deprecated; True: ``op=Average``, False: ``op=Sum``.
        name : str | None
            Name of the operation. Calls with the same name on different ranks belong together.
            None: unnamed calls belong together in the order in which each rank makes them.
        compression : compressor | str
            Encoding of wider floating data between hosts: a compressor of the binding
            (``Compression.fp16``, or a custom compressor), or for arrays a floating dtype
            ("float16", "bfloat16").
        op : Op | None
            ``Average`` (the default), ``Sum``, ``Min``, ``Max``, ``Product`` or ``Adasum`` (for
            floating arrays; each array is one vector, also in a group). Averages of integers are
            rounded toward zero.
        prescale_factor, postscale_factor : float
            Factors that multiply every rank's values before, and the result after, the reduction.
        process_set : ProcessSet
            The ranks that take part.
        algorithm : str | None
            Name of the algorithm ("ring", "tree", "two_level:ring", ...); None: chosen
            automatically. It is the same on every rank.

        Returns
        -------
        array or tensor
            A new array of the same dtype and shape.

        Raises
        ------
        ringcomm.MismatchError
            Dtypes, shapes, ops or algorithms differ between ranks; the job continues.
        ringcomm.UnsupportedError
            The dtype does not support the op. It is a TypeError and a ValueError.
        ValueError
            Both ``op`` and ``average`` are passed; the op or algorithm is unknown; an operation of
            this name is in flight; or this rank is not in ``process_set``.
        ringcomm.RankLeftError, ringcomm.PeerLostError
            A rank that is needed has shut down or ended; a rank died.

        Examples
        --------
        >>> ringcomm.init()
        >>> x = np.full(2, 1.0 + ringcomm.rank())          # [1, 1] and [2, 2]
        >>> ringcomm.allreduce(x, name="gradient").tolist()
        [1.5, 1.5]
        >>> ringcomm.allreduce(x, name="gradient", op=ringcomm.Sum).tolist()
        [3.0, 3.0]
        """
        reduction = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_allreduce, False, [tensor], name, compression, reduction)

    def allreduce_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> T:
        """Performs :meth:`allreduce` in place; returns ``tensor``.

        Examples
        --------
        >>> ringcomm.init()
        >>> x = np.ones(2)
        >>> ringcomm.allreduce_(x, op=ringcomm.Sum) is x, x.tolist()
        (True, [2.0, 2.0])
        """
        # Written without `blocking_form`, which would add 0.1 us to every call.
        arguments = average, name, op, prescale_factor, postscale_factor, process_set, algorithm
        return self.allreduce_async_(tensor, *arguments).wait()

    def grouped_allreduce_async(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[list[T]]:
        """Starts :meth:`grouped_allreduce` in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> group = [np.ones(2), np.zeros(3)]
        >>> handle = ringcomm.grouped_allreduce_async(group, name="layer", op=ringcomm.Sum)
        >>> [y.tolist() for y in ringcomm.synchronize(handle)]
        [[2.0, 2.0], [0.0, 0.0, 0.0]]
        """
        reduction = Reduction(
            chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm, priority=priority
        )
        return self._group(reduction, name, self.allreduce_request, tensors)

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[list[T]]:
        """Starts :meth:`grouped_allreduce` in place and in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> group = [np.ones(2), np.zeros(3)]
        >>> handle = ringcomm.grouped_allreduce_async_(group, name="layer", op=ringcomm.Sum)
        >>> ringcomm.synchronize(handle)[0] is group[0], group[0].tolist()
        (True, [2.0, 2.0])
        """
        reduction = Reduction(
            chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm, priority=priority
        )
        return self._group(reduction, name, self.allreduce_request, tensors, True)

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        algorithm: str | None = None,
    ) -> list[T]:
        """Performs :meth:`allreduce` of several arrays as one group.

        The group runs when every rank has submitted all of its arrays.

        Parameters
        ----------
        tensors : Sequence[array or tensor]
            Arrays as for :meth:`allreduce`; the other arguments are those of :meth:`allreduce`.
        name : str | None
            Name of the group.

        Returns
        -------
        list[array or tensor]
            The results, in the order of ``tensors``.

        Examples
        --------
        >>> ringcomm.init()
        >>> group = [np.ones(2), np.zeros(3)]
        >>> [y.tolist() for y in ringcomm.grouped_allreduce(group, op=ringcomm.Sum)]
        [[2.0, 2.0], [0.0, 0.0, 0.0]]
        """
        reduction = Reduction(chosen_op(op, average), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_allreduce, True, tensors, name, compression, reduction)

    grouped_allreduce_ = blocking_form(
        grouped_allreduce_async_,
        """Performs :meth:`grouped_allreduce` in place; returns the arrays.

        Examples
        --------
        >>> ringcomm.init()
        >>> group = [np.ones(2), np.zeros(3)]
        >>> ringcomm.grouped_allreduce_(group, op=ringcomm.Sum)[0] is group[0], group[0].tolist()
        (True, [2.0, 2.0])
        """,
        "list[T]",
    )

    # ---- reducescatter -----------------------------------------------------------------------------------------------
    def reducescatter_async(
        self,
        tensor: T,
        name: str | None = None,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[T]:
        """Starts :meth:`reducescatter` in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> handle = ringcomm.reducescatter_async(np.ones((2, 3)), name="rows", op=ringcomm.Sum)
        >>> ringcomm.synchronize(handle).tolist()
        [[2.0, 2.0, 2.0]]
        """
        reduction = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm, priority=priority)
        return reduction.submit(self.reducescatter_request(reduction, tensor), name)

    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> T:
        """Returns part r of the reduction of every rank's ``tensor`` on rank r of the set.

        The reduction is divided along the first dimension; the first ``tensor.shape[0] % size``
        ranks get one more row.

        Parameters
        ----------
        tensor : array or tensor
            Has at least one dimension. This and the other arguments are as for :meth:`allreduce`.

        Returns
        -------
        array or tensor
            This rank's rows of the reduction.

        Examples
        --------
        >>> ringcomm.init()
        >>> ringcomm.reducescatter(np.ones((2, 3)), op=ringcomm.Sum).tolist()
        [[2.0, 2.0, 2.0]]
        """
        reduction = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_reducescatter, False, [tensor], name, compression, reduction)

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
        priority: int = 0,
    ) -> Handle[list[T]]:
        """Starts :meth:`grouped_reducescatter` in the background.

        Returns
        -------
        Handle
            For ``poll`` and ``synchronize``.

        Examples
        --------
        >>> ringcomm.init()
        >>> group = [np.ones(2), np.ones((2, 2))]
        >>> handle = ringcomm.grouped_reducescatter_async(group, name="rows", op=ringcomm.Sum)
        >>> [y.tolist() for y in ringcomm.synchronize(handle)]
        [[2.0], [[2.0, 2.0]]]
        """
        reduction = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm, priority=priority)
        return self._group(reduction, name, self.reducescatter_request, tensors)

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        compression: Any = NoneCompressor,
        op: Any = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        algorithm: str | None = None,
    ) -> list[T]:
        """Performs :meth:`reducescatter` of several arrays as one group, in one operation.

        Parameters
        ----------
        tensors : Sequence[array or tensor]
            Arrays as for :meth:`reducescatter`, with the same other arguments.

        Returns
        -------
        list[array or tensor]
            This rank's rows of each reduction.

        Examples
        --------
        >>> ringcomm.init()
        >>> group = [np.ones(2), np.ones((2, 2))]
        >>> [y.tolist() for y in ringcomm.grouped_reducescatter(group, op=ringcomm.Sum)]
        [[2.0], [[2.0, 2.0]]]
        """
        reduction = Reduction(core_op(op), prescale_factor, postscale_factor, process_set, algorithm)
        return self._compressed(self.run_reducescatter, True, tensors, name, compression, reduction)
