"""Where gradients that travel together lie.

Which ones travel together, in a *bucket*, `ringcomm.plans.assign` says. All gradients of a bucket have one dtype, and
follow one upon the other in stretches. A big gradient may be a stretch of its own, which lies where autograd made it if
that is in this rank's arena; small ones lie in one flat tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from ringcomm import _core
from ringcomm.plans import BucketShape, BucketWire, LowRank, StepPlan
from ringcomm.torch.bucket_memory import BucketMemory, allocate_flat
from ringcomm.torch.tensors import DTYPES

ALIGNMENT = 64  # bytes: a slice starts on a cache line of its own
BIG = 64 << 10  # bytes of a gradient that may be a stretch of its own
MOST_APART = 120  # such stretches of a bucket: ranks tell each other where all of them lie


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

    def travelling(self) -> torch.Tensor | None:
        """What others may read and write."""
        return self.view

    def release(self) -> None:  # noqa: B027
        """The step is over: nobody else reads or writes what has travelled."""


class FlatSlice(Slice):
    """Of a flat tensor, where others lie beside it."""

    def __init__(
        self, bucket: int, parameter: torch.Tensor, memory: BucketMemory, flat: torch.Tensor, offset: int
    ) -> None:
        super().__init__(bucket, parameter)
        self._memory, self._flat, self._offset = memory, flat, offset
        self.address = flat.data_ptr() + offset * flat.element_size()
        self.view = self._view_of(flat, offset)

    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        self._look()
        if gradient is not self.view and (gradient.data_ptr() != self.address or gradient.stride() != self._strides):
            self._memory.bring(gradient, self.view)
        return self.view

    def stored(self) -> torch.Tensor:
        self._memory.settle()
        return self.view

    def clear(self) -> None:
        self._look()
        self.view.zero_()

    def leave(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone() if gradient is self.view else gradient

    def _look(self) -> None:
        if self.view.data_ptr() != self.address or self.view.shape != self._shape:  # a script has pointed it elsewhere
            self.view = self._view_of(self._flat, self._offset)


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

    @property
    def view(self) -> torch.Tensor:  # type: ignore[override]
        assert self._travels is not None
        return self._travels

    def store(self, gradient: torch.Tensor) -> torch.Tensor:
        if self._lies_well(gradient):
            if gradient is not self._copy:
                self._copy = None
            return self._send(gradient)
        return self._send(self._room().copy_(gradient))

    def clear(self) -> None:
        self._send(self._room().zero_())

    def leave(self, gradient: torch.Tensor) -> torch.Tensor:
        if gradient is self._copy:
            self._copy = None
        return gradient

    def travelling(self) -> torch.Tensor | None:
        return self._travels

    def release(self) -> None:
        self._travels = None

    def _send(self, tensor: torch.Tensor) -> torch.Tensor:
        self._travels = tensor
        self._memory.place(self.bucket, self._stretch, tensor.data_ptr())
        return tensor

    def _room(self) -> torch.Tensor:
        moved = self._copy is not None and (self._copy.data_ptr() != self._address or self._copy.shape != self._shape)
        if self._copy is None or moved:  # a script has pointed it elsewhere
            self._copy = self._view_of(allocate_flat(self._count, self._dtype, self._node), 0)
            self._address = self._copy.data_ptr()
        return self._copy

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


def _users(storage: torch.UntypedStorage) -> int:
    return int(torch._C._storage_Use_Count(storage._cdata)) if COUNTS_USERS else 0


_alone = torch.empty(1)
_ONE = _users(_alone.untyped_storage())  # tensor, and the object through which it is asked


def has_no_other_user(storage: torch.UntypedStorage) -> bool:
    """Whether one tensor only has this storage. Autograd gives the gradient of a sum to both operands: where these are
    views of parameters, two gradients lie in one storage. False where this torch does not tell."""
    return COUNTS_USERS and _users(storage) == _ONE


@dataclass
class Bucket:
    """Which items travel together, and in which stretches; once laid out, the memory of those that do not lie apart."""

    items: list[int]
    dtype: torch.dtype
    memory: BucketMemory
    stretches: list[int]  # elements
    where: list[tuple[int, int]]  # of each item: its stretch and offset there
    apart: set[int]  # stretches of one item each
    gaps: list[tuple[int, int]]  # elements between items: the first one, how many
    flats: list[torch.Tensor] = field(default_factory=list)
    clears: Sequence[tuple[int, int]] = ()  # gaps that are to hold zeros, which is seen to here
    holes: list[torch.Tensor] = field(default_factory=list)  # views of these

    @classmethod
    def cut(cls, items: Sequence[int], parameters: Sequence[torch.Tensor], apart: bool, memory: BucketMemory) -> Bucket:
        """`apart`: big items may be stretches of their own. The same on all ranks, for only shapes matter, and whether
        it is on a device."""
        apart = apart and not memory.on_device
        sizes = [padded(parameters[item]) for item in items]
        of_bytes = parameters[items[0]].element_size()
        biggest = sorted((size for size in sizes if apart and size * of_bytes >= BIG), reverse=True)
        least = biggest[min(len(biggest), MOST_APART) - 1] if biggest else sum(sizes) + 1
        bucket = cls(list(items), parameters[items[0]].dtype, memory, [], [], set(), [])
        for item, size in zip(items, sizes, strict=True):
            alone = size >= least and len(bucket.apart) < MOST_APART
            if alone or not bucket.stretches or len(bucket.stretches) - 1 in bucket.apart:
                bucket.stretches.append(0)
            stretch = len(bucket.stretches) - 1
            if alone:
                bucket.apart.add(stretch)
            bucket.where.append((stretch, bucket.stretches[stretch]))
            bucket.stretches[stretch] += size
            used = parameters[item].numel()
            if used < size:
                bucket.gaps.append((bucket.first_of(len(bucket.where) - 1) + used, size - used))
        return bucket

    def shape(self, wire: BucketWire, low_rank: LowRank) -> BucketShape:
        gaps = self.gaps if wire.compresses() else ()
        if self.memory.on_device:  # where the core does not write zeros
            self.clears, gaps = gaps, ()
        return BucketShape(DTYPES[self.dtype], self.stretches, wire, gaps, low_rank, self.memory.on_device)

    def ready(self, plan: StepPlan, number: int) -> None:
        """All its gradients have come."""
        if self.holes:
            torch._foreach_zero_(self.holes)
        self.memory.ready(plan, number)

    def matrices(self, parameters: Sequence[torch.Tensor]) -> list[tuple[int, int, int]]:
        """Of each item: its first element, and rows and columns as it lies."""
        shapes = []
        for position, item in enumerate(self.items):
            parameter = parameters[item]
            _, rows = max(
                zip(dense_strides(parameter), parameter.shape, strict=True), key=lambda it: (it[1] > 1, it[0])
            )
            shapes.append((self.first_of(position), rows, parameter.numel() // rows))
        return shapes

    def first_of(self, position: int) -> int:
        """The element of the bucket that the item at this position begins with."""
        stretch, offset = self.where[position]
        return sum(self.stretches[:stretch]) + offset

    def lay_out(
        self, number: int, parameters: Sequence[torch.Tensor], memory: Memory, node: _core.Node | None
    ) -> dict[int, Slice]:
        """Allocates what does not lie apart, and makes a slice for each item; those apart in the arena of ``node``."""
        apart = self.apart if len(self.stretches) == 1 or memory.takes_stretches(number) else set()
        starts: dict[int, tuple[torch.Tensor, int]] = {}  # of stretches that do not lie apart
        if apart or not self.stretches:
            together = [[stretch] for stretch in range(len(self.stretches)) if stretch not in apart]
        else:
            together = [list(range(len(self.stretches)))]
        for stretches in together:
            flat = self.memory.allocate(sum(self.stretches[stretch] for stretch in stretches), self.dtype)
            self.flats.append(flat)
            memory.place(number, stretches[0], flat.data_ptr())
            self.holes += [flat[first : first + count] for first, count in self.clears]
            offset = 0
            for stretch in stretches:
                starts[stretch] = flat, offset
                offset += self.stretches[stretch]
        slices: dict[int, Slice] = {}
        for item, (stretch, offset) in zip(self.items, self.where, strict=True):
            if stretch in apart:
                slices[item] = ApartSlice(number, parameters[item], memory, stretch, node)
            else:
                flat, start = starts[stretch]
                slices[item] = FlatSlice(number, parameters[item], self.memory, flat, start + offset)
        return slices
