"""Aten operations of the stand-in's torch device: the CPU's, on its memory, in stream order.

An operation is queued: torch's meta device gives the shapes of its results, and the stream's thread
does the work. So tests notice operations that read too early or write too late. An operation that
draws random numbers, or whose result shapes depend on data, waits for the current stream; its
results are written in stream order too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dlpack
import torch
import torch_sparse
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._pytree import tree_map
from torch_calls import Call
from torch_memory import Memory, Queue

aten = torch.ops.aten
CPU = DispatchKeySet(DispatchKey.CPU)
KERNELS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")
NOW = (torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


class Operations:
    def __init__(self, name: str, memory: Memory, queue: Queue) -> None:
        self._name, self._memory, self._queue = name, memory, queue
        self._seeds: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._libraries = [torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")]
        self._libraries[0].fallback(self.run, "PrivateUse1")
        for operation, function in self._own():
            self._libraries[1].impl(operation, function, "PrivateUse1")

    def _own(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        yield "empty.memory_format", self.empty
        yield "empty_strided", self.empty_strided
        yield "copy_", self.copy_
        yield "resize_", self.resize_
        yield "record_stream", self.record_stream
        yield "convolution_overrideable", lambda *args: self.run(aten.convolution.default, *args)
        yield "convolution_backward_overrideable", self.convolution_backward
        for name in ("as_strided", "view", "unfold", "view_as_real", "view_as_complex", "_reshape_alias"):
            yield name, _as_cpu(getattr(aten, name).default)
        for overload in ("source_Storage_storage_offset", "source_Storage", "source_Tensor"):
            yield f"set_.{overload}", _as_cpu(getattr(aten.set_, overload))

    # Creation of tensors

    def empty_strided(
        self,
        size: Any,
        stride: Any,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
    ) -> torch.Tensor:
        dtype = dtype or torch.get_default_dtype()
        index = self._index(device)
        last = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if 0 not in size else 0
        with torch.get_device_module(self._name).device(index):  # the device on which the allocator allocates
            storage = torch.UntypedStorage(last * dtype.itemsize, device=torch.device(self._name, index))
        made = torch._C._acc.create_empty_tensor([0], dtype) if index == 0 else self._elsewhere(index, dtype)
        return aten.set_.source_Storage_storage_offset.redispatch(CPU, made, storage, 0, size, stride)

    def empty(
        self,
        size: Any,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
        memory_format: Any = None,
    ) -> torch.Tensor:
        like = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
        return self.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=device)

    def _elsewhere(self, index: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns an empty tensor on a device but the first, which torch makes from DLPack."""
        if (index, dtype) not in self._seeds:
            made = torch.from_dlpack(
                dlpack.capsule(0, (0,), (1,), str(dtype).removeprefix("torch."), dlpack.EXTENSION, index)
            )
            self._seeds[index, dtype] = made
        return aten.as_strided.default.redispatch(CPU, self._seeds[index, dtype], [0], [1])

    def _index(self, device: Any) -> int:
        index = None if device is None else torch.device(device).index
        return self._queue.library.guard_current_device() if index is None else index

    # Operations that differ from those on the host

    def copy_(self, to: torch.Tensor, given: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        """Copies as CUDA does: on return, pageable memory is done; pinned memory need not be."""
        mine, theirs = to.device.type == self._name, given.device.type == self._name
        if theirs and to.device != given.device:
            stream = self._stream(given.device.index)
            if not mine and non_blocking and to.is_pinned():
                return self._copy_later(to, self._memory.host_view(given), given.device.index, to)
            self._queue.synchronize(given.device.index, stream)
            if not mine:
                return to.copy_(self._memory.host_view(given))
        late = theirs or (non_blocking and given.is_pinned())
        source = self._memory.host_view(given) if theirs else given if late else given.clone()
        return self._copy_later(self._memory.host_view(to), source, to.device.index, to)

    def _copy_later(
        self, target: torch.Tensor, source: torch.Tensor, device: int, result: torch.Tensor
    ) -> torch.Tensor:
        self._queue.launch(device, self._stream(device), lambda: target.copy_(source))
        return result

    def record_stream(self, tensor: torch.Tensor, stream: torch.Stream) -> None:
        self._memory.record(tensor.untyped_storage().data_ptr(), stream.stream_id)

    def resize_(self, tensor: torch.Tensor, size: Any, memory_format: Any = None) -> torch.Tensor:
        like = torch.empty(
            size, dtype=tensor.dtype, device="meta", memory_format=memory_format or torch.contiguous_format
        )
        needed = (tensor.storage_offset() + like.numel()) * tensor.itemsize
        storage, offset = tensor.untyped_storage(), tensor.storage_offset()
        if needed > storage.nbytes():
            made, offset = self.empty_strided(like.size(), like.stride(), dtype=tensor.dtype, device=tensor.device), 0
            kept = min(tensor.numel(), made.numel())
            self.copy_(made.as_strided((kept,), (1,)), tensor.as_strided((kept,), (1,)))
            storage = made.untyped_storage()
        set_ = aten.set_.source_Storage_storage_offset
        return set_.redispatch(CPU, tensor, storage, offset, like.size(), like.stride())

    def convolution_backward(
        self,
        gradient: Any,
        given: Any,
        weight: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: Any,
        *rest: Any,
    ) -> Any:
        _, groups, mask = rest
        biases = [weight.size(1) * groups if transposed else weight.size(0)] if mask[2] else None
        how = (biases, stride, padding, dilation, transposed, *rest)
        return self.run(aten.convolution_backward.default, gradient, given, weight, *how)

    # All other operations

    def run(self, operation: Any, *args: Any, **kwargs: Any) -> Any:
        name = operation.name()
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in KERNELS):
            raise NotImplementedError(f"{name} has no kernel for the CPU, so none for {self._name}")
        call = Call(operation, args, kwargs, self._name)
        device = call.device if call.device is not None else self._index(kwargs.get("device"))
        shapes: Any = None
        now = any(tag in operation.tags for tag in NOW)
        if not now:
            try:
                shapes = call.on_meta()
            except Exception:  # meta lacks the kernel, or the call is wrong and the CPU reports the error
                now = bool(call.new_results)
        if now:
            return self._run_now(call, device)
        call.resize_as_meta(self.resize_)
        results = tree_map(lambda one: self._empty_as(one, device) if isinstance(one, torch.Tensor) else one, shapes)
        self._queue_up(call, results, device)
        return call.returned(results)

    def _queue_up(self, call: Call, results: Any, device: int) -> None:
        host_call, flat = call.on_host(self._memory.host_view), call.flat
        news = [(number, self._memory.host_view(one)) for number, one in call.new_of(results)]

        def work() -> None:
            made = flat(host_call())
            for number, view in news:
                if made[number].numel():  # the CPU's batch norm omits statistics that meta's returns
                    view.copy_(made[number])

        self._queue.launch(device, self._stream(device), work)

    def _run_now(self, call: Call, device: int) -> Any:
        self._queue.synchronize(device, self._stream(device))
        host_call = call.on_host(
            lambda tensor: self._memory.host_view(tensor).clone(memory_format=torch.preserve_format)
        )
        made = host_call()
        for tensor, changed in zip(call.written, call.host_written(), strict=True):
            if tensor.size() != changed.size():
                self.resize_(tensor, changed.size())
            self.copy_(tensor, changed)
        place = lambda one: self._on_device(one, device) if isinstance(one, torch.Tensor) else one  # noqa: E731
        return call.returned(tree_map(place, made))

    def _on_device(self, made: torch.Tensor, device: int) -> torch.Tensor:
        if made.is_sparse:
            return torch_sparse.with_parts(made, torch.device(self._name, device))
        return self.copy_(self._empty_as(made, device), made)

    def _empty_as(self, like: torch.Tensor, device: int) -> torch.Tensor:
        return self.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=torch.device(self._name, device))

    def _stream(self, device: int) -> int:
        return self._queue.library.guard_current_stream(device)


def _as_cpu(operation: Any) -> Callable[..., Any]:
    """Returns the CPU's kernel, which accesses a tensor's sizes only."""
    return lambda *args, **kwargs: operation.redispatch(CPU, *args, **kwargs)
