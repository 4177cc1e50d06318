"""Slices: the parts of a bucket, each the memory of one parameter's gradient while it is reduced.

A slice also detects if a script still references that memory. The script then keeps the memory, and
the slice gets new memory.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch

from ringcomm._src.core import _core
from ringcomm._src.torch.bucket_memory import BucketMemory, allocate_flat

ALIGNMENT = 64  # bytes: each slice starts on a separate cache line
BIG = 64 << 10  # bytes: minimum size of a gradient in a separate stretch


class Memory(Protocol):
    """Interface of a StepPlan that receives the addresses of stretches (see `buckets`)."""

    def takes_stretches(self, bucket: int) -> bool: ...
    def place(self, bucket: int, stretch: int, address: int) -> None: ...


def dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """Returns the strides if they are dense (as channels_last is), else contiguous strides."""
    expected = 1
    for stride, extent in sorted((s, n) for s, n in zip(parameter.stride(), parameter.shape, strict=True) if n > 1):
        expected = expected * extent if stride == expected else 0
    if expected == max(parameter.numel(), 1):
        return parameter.stride()
    return torch.empty(parameter.shape, dtype=parameter.dtype, device="meta").stride()


def padded(parameter: torch.Tensor) -> int:
    """Returns the number of elements, padded to full cache lines."""
    step = max(1, ALIGNMENT // parameter.element_size())
    return -(-parameter.numel() // step) * step


class Slice(ABC):
    """A parameter's part of a bucket. ``view`` is the data to reduce, in the parameter's shape."""

    view: torch.Tensor

    def __init__(self, bucket: int, parameter: torch.Tensor) -> None:
        self.bucket = bucket
        self._shape, self._strides = parameter.shape, dense_strides(parameter)

    def _view_of(self, flat: torch.Tensor, offset: int) -> torch.Tensor:
        # as_strided would return a view, which shares the version counter of `flat`, and which
        # autograd refuses to detach in place.
        view = torch.empty(0, dtype=flat.dtype, device=flat.device)
        return view.set_(flat.untyped_storage(), offset, self._shape, self._strides)

    @abstractmethod
    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        """Puts the gradient into the bucket, and returns the tensor to use as ``.grad``."""

    @abstractmethod
    def clear(self) -> None:
        """Writes zeros, because this rank has no gradient."""

    @abstractmethod
    def move_out(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the gradient in memory that the bucket no longer uses."""

    def stored(self) -> torch.Tensor:
        """Returns the view after pending copies into it are complete."""
        return self.view

    def memory_in_use(self) -> object:
        """Returns an object that keeps the memory alive that other ranks access."""
        return self.view

    def release(self) -> None:  # noqa: B027
        """Ends the step: no other rank accesses the memory any more."""


class Flat:
    """A tensor with several gradients of a bucket, replaced once a script keeps a part of it."""

    def __init__(
        self,
        memory: BucketMemory,
        plan: Memory,
        where: tuple[int, int],
        count: int,
        dtype: torch.dtype,
        clears: Sequence[tuple[int, int]],
    ) -> None:
        """Allocates the tensor for `where`: (bucket, stretch). `clears`: gaps to fill with zeros."""
        self.memory, self._plan, self._where, self._shape = memory, plan, where, (count, dtype)
        self._clears = clears
        self.slices: list[FlatSlice] = []
        self._allocate()

    def _allocate(self) -> None:
        self.tensor = self.memory.allocate(*self._shape)
        self._plan.place(*self._where, self.tensor.data_ptr())
        self.holes = [self.tensor[first : first + count] for first, count in self._clears]
        self._storage = self.tensor.untyped_storage()

    def add(self, slice_: FlatSlice) -> None:
        self.slices.append(slice_)
        self.expected_users = users_of(self._storage)

    def is_aliased(self) -> bool:
        """Returns True if a script has a view or an array of the tensor. Call it between steps."""
        return users_of(self._storage) > self.expected_users

    def renew(self) -> None:
        """Leaves the memory to the script and allocates new memory. Call it between steps."""
        self.memory.release(self.tensor)
        self._allocate()
        for slice_ in self.slices:
            slice_.set_view()
        self.expected_users = users_of(self._storage)


class FlatSlice(Slice):
    """A slice of a flat tensor, next to other slices."""

    def __init__(self, bucket: int, parameter: torch.Tensor, flat: Flat, offset: int) -> None:
        super().__init__(bucket, parameter)
        self.flat, self._offset = flat, offset
        self.set_view()
        flat.add(self)

    def set_view(self) -> None:
        """Points the view at this slice's range of the flat tensor."""
        tensor = self.flat.tensor
        self.address = tensor.data_ptr() + self._offset * tensor.element_size()
        self.view = self._view_of(tensor, self._offset)

    def is_kept(self) -> bool:
        """Returns True if anything else, for example ``.grad``, references the view."""
        return sys.getrefcount(self.view) > REFERENCES

    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        view = self._usable_view()
        if gradient is not view and (gradient.data_ptr() != self.address or gradient.stride() != self._strides):
            self.flat.memory.copy_in(gradient, view)
        return view

    def stored(self) -> torch.Tensor:
        self.flat.memory.complete_copies()
        return self.view

    def clear(self) -> None:
        self._usable_view().zero_()

    def move_out(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone() if gradient is self.view else gradient

    def _usable_view(self) -> torch.Tensor:
        if self.view.data_ptr() != self.address or self.view.shape != self._shape:  # a script has set `view.data`
            self.set_view()
        return self.view


class SeparateSlice(Slice):
    """A slice in a separate stretch: the gradient if it is in this rank's arena, else a copy."""

    def __init__(
        self, bucket: int, parameter: torch.Tensor, memory: Memory, stretch: int, node: _core.Node | None
    ) -> None:
        super().__init__(bucket, parameter)
        self._memory, self._stretch, self._node = memory, stretch, node
        self._count, self._dtype = padded(parameter), parameter.dtype
        self._nbytes = parameter.numel() * parameter.element_size()
        self._copy: torch.Tensor | None = None
        self._address = 0  # address of the copy
        self._sent: torch.Tensor | None = None
        self._memory_used: torch.UntypedStorage | None = None

    @property
    def view(self) -> torch.Tensor:  # type: ignore[override]
        assert self._sent is not None
        return self._sent

    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        if self._is_usable_in_place(gradient):
            if gradient is not self._copy:
                self._copy = None
            return self._send(gradient)
        return self._send(self._memory_for_copy(gradient).copy_(gradient))

    def clear(self) -> None:
        self._send(self._memory_for_copy(None).zero_())

    def move_out(self, gradient: torch.Tensor) -> torch.Tensor:
        if gradient is self._copy:
            self._copy = None
        return gradient

    def memory_in_use(self) -> object:
        return self._memory_used

    def release(self) -> None:
        self._sent = self._memory_used = None

    def _send(self, tensor: torch.Tensor) -> torch.Tensor:
        self._sent, self._memory_used = tensor, tensor.untyped_storage()  # kept if a script sets `tensor.data`
        self._memory.place(self.bucket, self._stretch, tensor.data_ptr())
        return tensor

    def _memory_for_copy(self, gradient: torch.Tensor | None) -> torch.Tensor:
        """Returns memory for a copy of the gradient: that of the last copy if no script uses it."""
        if self._copy is None or (gradient is not self._copy and self._is_kept()):
            self._copy = self._view_of(allocate_flat(self._count, self._dtype, self._node), 0)
            self._address = self._copy.data_ptr()
        return self._copy

    def _is_kept(self) -> bool:
        """Returns True if a script references the copy, or has set its ``data``."""
        if self._copy.data_ptr() != self._address or self._copy.shape != self._shape:  # type: ignore[union-attr]
            return True
        return sys.getrefcount(self._copy) > REFERENCES or not has_no_other_user(self._copy.untyped_storage())  # type: ignore[union-attr]

    def _is_usable_in_place(self, gradient: torch.Tensor) -> bool:
        """Returns True if the gradient has the slice's strides, and its own block of the arena.

        The padding of the slice is in the block too, because a block consists of full pages.
        """
        if gradient.shape != self._shape or gradient.stride() != self._strides or gradient.dtype != self._dtype:
            return False
        storage = gradient.untyped_storage()
        return (
            gradient.storage_offset() == 0
            and storage.nbytes() <= self._count * gradient.element_size()
            and self._node is not None
            and self._node.offset_of(gradient.data_ptr(), self._nbytes) is not None
            and has_no_other_user(storage)
        )


COUNTS_USERS = hasattr(torch._C, "_storage_Use_Count")  # this torch counts the users of a storage


def users_of(storage: torch.UntypedStorage) -> int:
    """Returns the number of tensors and objects that use the storage; 0 if torch does not count."""
    return int(torch._C._storage_Use_Count(storage._cdata)) if COUNTS_USERS else 0


class _Holder:
    def __init__(self) -> None:
        self.tensor = torch.empty(1)


_holder = _Holder()
ONE_USER = users_of(_holder.tensor.untyped_storage())  # the tensor, and the storage object that is queried
REFERENCES = sys.getrefcount(_holder.tensor)  # references to a tensor that is in a single attribute


def has_no_other_user(storage: torch.UntypedStorage) -> bool:
    """Returns True if a single tensor uses this storage; False if this torch does not count users.

    Two gradients can share a storage: autograd passes the gradient of a sum to both operands, which
    may be views of parameters.
    """
    return COUNTS_USERS and users_of(storage) == ONE_USER
