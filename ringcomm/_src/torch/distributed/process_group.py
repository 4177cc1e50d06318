"""The calls of a process group of torch.distributed, translated to requests of the core.

The base class in the module `runs` submits the requests.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ringcomm._src.arrays import arrays
from ringcomm._src.base import ops
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.core import _core
from ringcomm._src.core._core import Request
from ringcomm._src.torch.distributed import forms, sparse
from ringcomm._src.torch.distributed.lists import FlatList, require_parts, require_single, rows_of
from ringcomm._src.torch.distributed.messages import GroupMessages
from ringcomm._src.torch.distributed.reductions import of_torch
from ringcomm._src.torch.distributed.shared_tensors import BIG, is_from_reducer
from ringcomm._src.torch.distributed.work import Work

Tensor = torch.Tensor
Tensors = list[Tensor]


class ProcessGroup(GroupMessages):
    """A process group made by ``init_process_group("ringcomm")`` or ``new_group``.

    It has every collective and every point-to-point operation of torch.distributed. Tensors may be
    on the CPU or a CUDA device, of any dtype, contiguous or not. Reductions support the dtypes of
    :class:`ringcomm.Op`. Point-to-point messages of CUDA tensors are copied through host memory,
    and the host waits for the copies.

    Reductions, broadcasts, gathers, scatters and barriers take both of torch's forms: lists and an
    object of options, or tensors, ``root``, ``op`` and ``timeout``.

    Calls of one group run in the order submitted, concurrently with calls of other groups. Ranks
    compare each call before data moves. A MismatchError names the group and the number of the call.

    Examples
    --------
    >>> import torch.distributed as dist
    >>> dist.init_process_group("ringcomm")
    >>> x = torch.full((2,), rank + 1.0)
    >>> dist.all_reduce(x)
    >>> x.tolist()
    [3.0, 3.0]
    >>> dist.group.WORLD.stats().of("allreduce").calls
    1
    >>> dist.destroy_process_group()
    """

    # ---- reductions --------------------------------------------------------------------------------------------------
    def allreduce(self, *given: Any, **named: Any) -> Work:
        """Reduces a tensor in place."""
        tensors, opts = forms.ALLREDUCE.read(given, named)
        require_single("all_reduce", "the input", tensors)
        return self._allreduce(tensors, opts)

    def _allreduce(self, tensors: Tensors, opts: Any) -> Work:
        op, factor = of_torch(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
        if tensors[0].is_sparse:
            return self._allreduce_sparse(tensors, op, factor, opts)
        if tensors[0].nbytes >= BIG:
            self._share_tensors(tensors, is_from_reducer(sys._getframe(1).f_back))  # the frame that called allreduce()

        def make(name: str) -> list[Request]:
            buffers = [arrays.target(tensor) for tensor in tensors]
            return [calls.allreduce(buffer, buffer, op, name=name, pre=factor) for buffer in buffers]

        return self._in_place((op, factor), tensors, make, opts)

    def _allreduce_sparse(
        self, tensors: Tensors, op: Any, factor: float, opts: Any, weights: Sequence[Tensor] = ()
    ) -> Work:
        def gather(packed: Tensor, finish: Callable[[Tensor], None]) -> Work:
            request = row_calls.allgather_any(arrays.source(packed))
            gathered = request.finish
            request.finish = lambda operation: finish(gathered(operation))

            def make(name: str) -> list[Request]:
                request.name = name
                return [request]

            return self._run(make, tensors, opts)

        return sparse.allreduce(self, tensors, op, factor, gather, weights)

    def average_sparse(self, tensors: Tensors, weights: Sequence[Tensor]) -> Work:
        """Averages in place. `weights`: tensors of these shapes that are updated with the results."""
        return self._allreduce_sparse(tensors, ops.Average, 1.0, None, weights)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduces each tensor separately, in place."""
        if not tensors:
            raise ValueError("all_reduce_coalesced: the list of tensors is empty")
        self._increment_versions(tensors)
        return self._allreduce(tensors, opts)

    def average(self, tensor: Tensor, wire: Any, feedback: _core.Feedback | None) -> Work:
        """Averages in place, in the format `wire` between hosts. ``feedback`` stores residuals."""
        self._share_tensors([tensor], bucket=True)

        def make(name: str) -> list[Request]:
            buffer = arrays.target(tensor)
            return [calls.allreduce(buffer, buffer, ops.Average, wire, name=name, feedback=feedback)]

        return self._run(make, [tensor], None)

    def reduce(self, *given: Any, **named: Any) -> Work:
        """Reduces in place on the root; tensors of other ranks do not change."""
        tensors, opts = forms.REDUCE.read(given, named)
        require_single("reduce", "the input", tensors)
        op, factor = of_torch(opts.reduceOp)

        def make(name: str) -> list[Request]:
            root, here = opts.rootRank, opts.rootRank == self._group.rank
            return [
                calls.reduce(tensor, tensor if here else None, root, op, self._group.rank, name=name, pre=factor)
                for tensor in tensors
            ]

        return self._run(make, tensors, opts)

    def reduce_scatter(self, *given: Any, **named: Any) -> Work:
        """Reduces lists of tensors, also of different sizes; rank r gets result r of each list."""
        outputs, inputs, opts = forms.REDUCE_SCATTER.read(given, named)
        require_parts("reduce_scatter", "the inputs", inputs, len(outputs), self._group.size)
        lists = [FlatList.of(each, True) for each in inputs]
        return self._reduce_scatter(
            outputs, [flat_list.flat for flat_list in lists], [rows_of(each) for each in inputs], opts
        )

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Reduces each input; rank r gets its part r."""
        rows = [[out.numel()] * self._group.size for out in outputs]
        return self._reduce_scatter(outputs, [tensor.reshape(-1) for tensor in inputs], rows, opts)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """Calls ``reduce_scatter_single_coalesced`` for one tensor."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def _reduce_scatter(self, outputs: Tensors, flats: Tensors, rows: list[list[int]], opts: Any) -> Work:
        op, factor = of_torch(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
        self._share_tensors(flats)
        self._increment_versions(outputs)
        me, size = self._group.rank, self._group.size
        flat_outputs = FlatList.each(outputs)

        def make(name: str) -> list[Request]:
            return [
                row_calls.reducescatter(arrays.source(flat), out, op, me, size, rows=each, name=name, pre=factor)
                for flat, out, each in zip(flats, flat_outputs.flats, rows, strict=True)
            ]

        return self._run(make, outputs, opts, flat_outputs.write_back)

    # ---- collectives that move data ----------------------------------------------------------------------------------
    def broadcast(self, *given: Any, **named: Any) -> Work:
        """Broadcasts the root's tensor to every rank."""
        tensors, opts = forms.BROADCAST.read(given, named)
        require_single("broadcast", "the input", tensors)

        def make(name: str) -> list[Request]:
            buffers = [arrays.target(tensor) for tensor in tensors]
            return [calls.broadcast(buffer, buffer, opts.rootRank, name=name) for buffer in buffers]

        if opts.rootRank != self._group.rank:
            self._increment_versions(tensors)
        return self._in_place(("broadcast", opts.rootRank), tensors, make, opts)

    def allgather(self, *given: Any, **named: Any) -> Work:
        """Gathers every rank's tensor into a list; sizes may differ between ranks."""
        outputs, inputs, opts = forms.ALLGATHER.read(given, named)
        require_parts("all_gather", "the outputs", outputs, len(inputs), self._group.size)
        if inputs[0].is_cpu:
            return self._allgather_per_rank(outputs, inputs, opts)
        lists = [FlatList.of(each, False) for each in outputs]
        rows = [rows_of(each) for each in outputs]
        all_outputs = [out for each in outputs for out in each]

        def finish() -> None:
            for flat_list in lists:
                flat_list.write_back()

        return self._allgather([flat_list.flat for flat_list in lists], inputs, rows, all_outputs, opts, finish)

    def _allgather_per_rank(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Gathers without an intermediate copy: each rank's data is read into its output."""
        all_outputs = [out for each in outputs for out in each]
        self._share_tensors([*inputs, *all_outputs])
        self._increment_versions(all_outputs)
        me, size = self._group.rank, self._group.size

        def make(name: str) -> list[Request]:
            return [
                row_calls.allgather_per_rank(tensor.reshape(-1), each, me, size, name=name)
                for tensor, each in zip(inputs, outputs, strict=True)
            ]

        return self._run(make, all_outputs, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Gathers every rank's tensors, one after the other."""
        flat_outputs = FlatList.each(outputs)
        rows = [[tensor.numel()] * self._group.size for tensor in inputs]
        return self._allgather(flat_outputs.flats, inputs, rows, outputs, opts, flat_outputs.write_back)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """Calls ``all_gather_single_coalesced`` for one tensor."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Gathers lists: ``outputs[r][i]`` is rank r's i-th tensor."""
        return self.allgather([list(each) for each in zip(*outputs, strict=True)], inputs, opts)

    def _allgather(
        self, flats: Tensors, inputs: Tensors, rows: list[list[int]], outputs: Tensors, opts: Any, finish: Any
    ) -> Work:
        self._share_tensors([*inputs, *flats])
        self._increment_versions(outputs)
        me, size = self._group.rank, self._group.size

        def make(name: str) -> list[Request]:
            return [
                row_calls.allgather(tensor.reshape(-1), flat, each, me, size, name=name)
                for tensor, flat, each in zip(inputs, flats, rows, strict=True)
            ]

        return self._run(make, outputs, opts, finish)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> Work:
        """Sends consecutive rows to each rank; without splits, the same number to each rank."""
        sent, received = self._elements(input, input_splits), self._elements(output, output_splits)
        flat_outputs = FlatList.each([output])
        row = math.prod(input.shape[1:])
        return self._alltoall(
            input.reshape(-1), flat_outputs.flats[0], sent, received, [output], opts, flat_outputs.write_back, row
        )

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Sends tensor r of the inputs to rank r."""
        sent, into = FlatList.of(inputs, True), FlatList.of(outputs, False)
        counts = rows_of(inputs), rows_of(outputs)
        return self._alltoall(sent.flat, into.flat, *counts, outputs, opts, into.write_back)

    def _elements(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        size, rows = self._group.size, tensor.shape[0] if tensor.dim() else 1
        if not splits and rows % size:
            raise ValueError(
                f"all_to_all_single: the first dimension, {rows}, is no multiple of {size} ranks: pass splits"
            )
        splits = list(splits) or [rows // size] * size
        if len(splits) != size or sum(splits) != rows:
            raise ValueError(f"all_to_all_single: splits {splits} must be {size} numbers that add up to {rows} rows")
        row = tensor.numel() // rows if rows else 0
        return [n * row for n in splits]

    def _alltoall(
        self,
        flat: Tensor,
        into: Tensor,
        sent: list[int],
        received: list[int],
        outputs: Tensors,
        opts: Any,
        finish: Any,
        row: int = 1,
    ) -> Work:
        self._share_tensors([flat, into])
        self._increment_versions(outputs)

        def make(name: str) -> list[Request]:
            return [row_calls.alltoall(flat, into, sent, received, self._group.size, name=name, count=row)]

        return self._run(make, outputs, opts, finish)

    def gather(self, *given: Any, **named: Any) -> Work:
        """Gathers every rank's tensor into the root's list."""
        outputs, inputs, opts = forms.GATHER.read(given, named)
        here = opts.rootRank == self._group.rank
        require_single("gather", "the input", inputs)
        if here:
            require_parts("gather", "the outputs", outputs, 1, self._group.size)
        into = FlatList.of(outputs[0], False) if here else None
        rows = rows_of(outputs[0]) if here else [inputs[0].numel()] * self._group.size
        flat = inputs[0].reshape(-1)
        if here:
            self._increment_versions(outputs[0])

        def make(name: str) -> list[Request]:
            out = into.flat if into else None
            return [row_calls.gather(flat, out, opts.rootRank, rows, self._group.rank, self._group.size, name)]

        return self._run(make, outputs[0] if here else [], opts, into.write_back if into else None)

    def scatter(self, *given: Any, **named: Any) -> Work:
        """Sends tensor r of the root's list to rank r."""
        outputs, inputs, opts = forms.SCATTER.read(given, named)
        here = opts.rootRank == self._group.rank
        require_single("scatter", "the output", outputs)
        if here:
            require_parts("scatter", "the inputs", inputs, 1, self._group.size)
        flat = FlatList.of(inputs[0], True).flat if here else None
        flat_outputs = FlatList.each(outputs)
        self._increment_versions(outputs)

        def make(name: str) -> list[Request]:
            me, size = self._group.rank, self._group.size
            return [row_calls.scatter(flat, flat_outputs.flats[0], opts.rootRank, None, me, size, name)]

        return self._run(make, outputs, opts, flat_outputs.write_back)

    def barrier(self, *given: Any, **named: Any) -> Work:
        """Completes when every rank has called it."""
        (opts,) = forms.BARRIER.read(given, named)
        return self._run(lambda name: [calls.barrier(name=name)], [], opts)

    # ---- names in other versions of torch ----------------------------------------------------------------------------
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
