"""The parts of buckets: where a parameter's gradient lies while it travels, and whether a script holds that memory."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch

from ringcomm._src.core import _core
from ringcomm._src.torch.bucket_memory import BucketMemory, allocate_flat

ALIGNMENT = 64  # bytes: a slice starts on a cache line of its own
BIG = 64 << 10  # bytes of a gradient that may be a stretch of its own


class Memory(Protocol):
    """Where the core is told that stretches lie: a StepPlan."""

    def takes_stretches(self, bucket: int) -> bool: ...
    def place(self, bucket: int, stretch: int, address: int) -> None: ...


def dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The parameter's strides if its elements fill one block of memory (as channels_last), else contiguous ones."""
    expected = 1
    for stride, extent in sorted((s, n) for s, n in zip(parameter.stride(), parameter.shape, strict=True) if n > 1):
        expected = expected * extent if stride == expected else 0
    if expected == max(parameter.numel(), 1):
        return parameter.stride()
    return torch.empty(parameter.shape, dtype=parameter.dtype, device="meta").stride()


def padded(parameter: torch.Tensor) -> int:
    """Elements, in whole cache lines."""
    step = max(1, ALIGNMENT // parameter.element_size())
    return -(-parameter.numel() // step) * step


class Slice(ABC):
    """A parameter's part of a bucket. ``view`` has the parameter's shape and strides, and is what travels."""

    view: torch.Tensor

    def __init__(self, bucket: int, parameter: torch.Tensor) -> None:
        self.bucket = bucket
        self._shape, self._strides = parameter.shape, dense_strides(parameter)

    def _view_of(self, flat: torch.Tensor, offset: int) -> torch.Tensor:
        # By storage and not by as_strided: no shared version counter, and not a "view" that autograd refuses to
        # detach in place.
        view = torch.empty(0, dtype=flat.dtype, device=flat.device)
        return view.set_(flat.untyped_storage(), offset, self._shape, self._strides)

    @abstractmethod
    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        """Has the gradient travel, and returns what to use as ``.grad``."""

    @abstractmethod
    def clear(self) -> None:
        """This rank has no gradient: zeros."""

    @abstractmethod
    def leave(self, gradient: torch.Tensor) -> torch.Tensor:
        """What to use as ``.grad`` for a gradient that is to be kept while zeros travel."""

    def stored(self) -> torch.Tensor:
        """The view, with what has been stored in it."""
        return self.view

    def travelling(self) -> object:
        """Returns the owner of the memory that other ranks may read and write; it keeps that memory allocated."""
        return self.view

    def release(self) -> None:  # noqa: B027
        """The step is over: nobody else reads or writes what has travelled."""


class Flat:
    """Memory in which gradients of a bucket lie one behind the other; other memory once a script keeps some of it."""

    def __init__(
        self,
        memory: BucketMemory,
        plan: Memory,
        where: tuple[int, int],
        count: int,
        dtype: torch.dtype,
        clears: Sequence[tuple[int, int]],
    ) -> None:
        """`where`: bucket and stretch; `clears`: gaps, first element and count, that are to hold zeros (`holes`)."""
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
        self.settled_users = users_of(self._storage)

    def is_aliased(self) -> bool:
        """Whether a script has a view of it, or its ``.data``, or an array. Between steps."""
        return users_of(self._storage) > self.settled_users

    def renew(self) -> None:
        """Leaves what it holds to the script. Between steps."""
        self.memory.forget(self.tensor)
        self._allocate()
        for one in self.slices:
            one.lie_in()
        self.settled_users = users_of(self._storage)


class FlatSlice(Slice):
    """Of a flat tensor, where others lie beside it."""

    def __init__(self, bucket: int, parameter: torch.Tensor, flat: Flat, offset: int) -> None:
        super().__init__(bucket, parameter)
        self.flat, self._offset = flat, offset
        self.lie_in()
        flat.add(self)

    def lie_in(self) -> None:
        """Takes its place in the flat tensor."""
        tensor = self.flat.tensor
        self.address = tensor.data_ptr() + self._offset * tensor.element_size()
        self.view = self._view_of(tensor, self._offset)

    def is_kept(self) -> bool:
        """Whether anything else, ``.grad`` perhaps, refers to the view."""
        return sys.getrefcount(self.view) > REFERENCES

    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        self._look()
        if gradient is not self.view and (gradient.data_ptr() != self.address or gradient.stride() != self._strides):
            self.flat.memory.bring(gradient, self.view)
        return self.view

    def stored(self) -> torch.Tensor:
        self.flat.memory.settle()
        return self.view

    def clear(self) -> None:
        self._look()
        self.view.zero_()

    def leave(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone() if gradient is self.view else gradient

    def _look(self) -> None:
        if self.view.data_ptr() != self.address or self.view.shape != self._shape:  # a script has pointed it elsewhere
            self.lie_in()


class ApartSlice(Slice):
    """A stretch of its own: the gradient itself if it lies in this rank's arena, else a copy there."""

    def __init__(
        self, bucket: int, parameter: torch.Tensor, memory: Memory, stretch: int, node: _core.Node | None
    ) -> None:
        super().__init__(bucket, parameter)
        self._memory, self._stretch, self._node = memory, stretch, node
        self._count, self._dtype = padded(parameter), parameter.dtype
        self._nbytes = parameter.numel() * parameter.element_size()
        self._copy: torch.Tensor | None = None
        self._address = 0  # of the copy
        self._travels: torch.Tensor | None = None
        self._memory_used: torch.UntypedStorage | None = None

    @property
    def view(self) -> torch.Tensor:  # type: ignore[override]
        assert self._travels is not None
        return self._travels

    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        if self._lies_well(gradient):
            if gradient is not self._copy:
                self._copy = None
            return self._send(gradient)
        return self._send(self._room(gradient).copy_(gradient))

    def clear(self) -> None:
        self._send(self._room(None).zero_())

    def leave(self, gradient: torch.Tensor) -> torch.Tensor:
        if gradient is self._copy:
            self._copy = None
        return gradient

    def travelling(self) -> object:
        return self._memory_used

    def release(self) -> None:
        self._travels = self._memory_used = None

    def _send(self, tensor: torch.Tensor) -> torch.Tensor:
        self._travels, self._memory_used = tensor, tensor.untyped_storage()  # `tensor.data = x` frees no memory in use
        self._memory.place(self.bucket, self._stretch, tensor.data_ptr())
        return tensor

    def _room(self, gradient: torch.Tensor | None) -> torch.Tensor:
        """For a copy of the gradient: the memory of the last one, unless a script has kept that or changed it."""
        if self._copy is None or (gradient is not self._copy and self._is_kept()):
            self._copy = self._view_of(allocate_flat(self._count, self._dtype, self._node), 0)
            self._address = self._copy.data_ptr()
        return self._copy

    def _is_kept(self) -> bool:
        """Whether a script has the copy, or has pointed it elsewhere."""
        if self._copy.data_ptr() != self._address or self._copy.shape != self._shape:  # type: ignore[union-attr]
            return True
        return sys.getrefcount(self._copy) > REFERENCES or not has_no_other_user(self._copy.untyped_storage())  # type: ignore[union-attr]

    def _lies_well(self, gradient: torch.Tensor) -> bool:
        """Whether it has a block of the arena to itself, in the order of elements that all ranks have. Its padding lies
        in the block, which is of whole pages."""
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


COUNTS_USERS = hasattr(torch._C, "_storage_Use_Count")  # whether this torch tells how many use a storage


def users_of(storage: torch.UntypedStorage) -> int:
    """How many tensors, and objects of Python, use it; 0 where this torch does not tell."""
    return int(torch._C._storage_Use_Count(storage._cdata)) if COUNTS_USERS else 0


class _Alone:
    def __init__(self) -> None:
        self.tensor = torch.empty(1)


_alone = _Alone()
ONE_USER = users_of(_alone.tensor.untyped_storage())  # the tensor, and the object through which it is asked
REFERENCES = sys.getrefcount(_alone.tensor)  # of a tensor that one attribute alone refers to


def has_no_other_user(storage: torch.UntypedStorage) -> bool:
    """Whether one tensor only has this storage. Autograd gives the gradient of a sum to both operands: where these are
    views of parameters, two gradients lie in one storage. False where this torch does not tell."""
    return COUNTS_USERS and users_of(storage) == ONE_USER
