"""Buckets: gradients that one call reduces together, and how they are stored.

`bucket_limits.assign` decides which gradients share a bucket. All gradients of a bucket have one
dtype. A bucket is a sequence of stretches, which are contiguous pieces of memory. A big gradient
may be a separate stretch. If autograd allocated it in this rank's arena, it is reduced there,
without a copy. Small gradients are stored in one flat tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ringcomm._src.core import _core
from ringcomm._src.torch.bucket_memory import BucketMemory
from ringcomm._src.torch.slices import BIG, Flat, FlatSlice, Memory, SeparateSlice, Slice, dense_strides, padded
from ringcomm._src.torch.tensors import DTYPES
from ringcomm._src.training.plans import BucketShape, BucketWire, LowRank, StepPlan

MAX_SEPARATE = 120  # maximum number of separate stretches of a bucket; ranks exchange the address of each


@dataclass
class Bucket:
    """Items that are reduced together, their stretches and (after `lay_out`) flat tensors."""

    items: list[int]  # indices of parameters
    dtype: torch.dtype
    memory: BucketMemory
    stretches: list[int]  # number of elements of each
    where: list[tuple[int, int]]  # stretch of each item, and the item's offset in it
    separate: set[int]  # stretches that hold one item in separate memory
    gaps: list[tuple[int, int]]  # padding between items: (first element, number of elements)
    flats: list[Flat] = field(default_factory=list)
    clears: Sequence[tuple[int, int]] = ()  # gaps that `ready` fills with zeros

    @classmethod
    def cut(
        cls, items: Sequence[int], parameters: Sequence[torch.Tensor], separate: bool, memory: BucketMemory
    ) -> Bucket:
        """Makes a bucket of these items. `separate`: big items may be separate stretches.

        The result is equal on all ranks: it depends only on shapes, and on whether the bucket is on
        a device.
        """
        separate = separate and not memory.on_device
        sizes = [padded(parameters[item]) for item in items]
        of_bytes = parameters[items[0]].element_size()
        biggest = sorted((size for size in sizes if separate and size * of_bytes >= BIG), reverse=True)
        least = biggest[min(len(biggest), MAX_SEPARATE) - 1] if biggest else sum(sizes) + 1
        bucket = cls(list(items), parameters[items[0]].dtype, memory, [], [], set(), [])
        for item, size in zip(items, sizes, strict=True):
            is_separate = size >= least and len(bucket.separate) < MAX_SEPARATE
            if is_separate or not bucket.stretches or len(bucket.stretches) - 1 in bucket.separate:
                bucket.stretches.append(0)
            stretch = len(bucket.stretches) - 1
            if is_separate:
                bucket.separate.add(stretch)
            bucket.where.append((stretch, bucket.stretches[stretch]))
            bucket.stretches[stretch] += size
            used = parameters[item].numel()
            if used < size:
                bucket.gaps.append((bucket.first_of(len(bucket.where) - 1) + used, size - used))
        return bucket

    def shape(self, wire: BucketWire, low_rank: LowRank) -> BucketShape:
        gaps = self.gaps if wire.compresses() else ()
        if self.memory.on_device:  # the core cannot clear gaps on a device, so `ready` does
            self.clears, gaps = gaps, ()
        return BucketShape(DTYPES[self.dtype], self.stretches, wire, gaps, low_rank, self.memory.on_device)

    def ready(self, plan: StepPlan, number: int) -> None:
        """Passes the bucket to the core. Its gradients are complete."""
        if self.clears:
            torch._foreach_zero_([hole for flat in self.flats for hole in flat.holes])
        self.memory.ready(plan, number)

    def matrices(self, parameters: Sequence[torch.Tensor]) -> list[tuple[int, int, int]]:
        """Returns (first element, rows, columns) of each item; a row is contiguous in memory."""
        shapes = []
        for position, item in enumerate(self.items):
            parameter = parameters[item]
            _, rows = max(
                zip(dense_strides(parameter), parameter.shape, strict=True), key=lambda it: (it[1] > 1, it[0])
            )
            shapes.append((self.first_of(position), rows, parameter.numel() // rows))
        return shapes

    def first_of(self, position: int) -> int:
        """Returns the index in the bucket of the first element of the item at this position."""
        stretch, offset = self.where[position]
        return sum(self.stretches[:stretch]) + offset

    def lay_out(
        self, number: int, parameters: Sequence[torch.Tensor], memory: Memory, node: _core.Node | None
    ) -> dict[int, Slice]:
        """Allocates the flat tensors. Returns a slice for each item; ``node`` has the arena."""
        separate = self.separate if len(self.stretches) == 1 or memory.takes_stretches(number) else set()
        starts: dict[int, tuple[Flat, int]] = {}  # flat tensor and offset of each stretch that is not separate
        if separate or not self.stretches:
            together = [[stretch] for stretch in range(len(self.stretches)) if stretch not in separate]
        else:
            together = [list(range(len(self.stretches)))]
        for stretches in together:
            count = sum(self.stretches[stretch] for stretch in stretches)
            flat = Flat(self.memory, memory, (number, stretches[0]), count, self.dtype, self.clears)
            self.flats.append(flat)
            offset = 0
            for stretch in stretches:
                starts[stretch] = flat, offset
                offset += self.stretches[stretch]
        slices: dict[int, Slice] = {}
        for item, (stretch, offset) in zip(self.items, self.where, strict=True):
            if stretch in separate:
                slices[item] = SeparateSlice(number, parameters[item], memory, stretch, node)
            else:
                flat, start = starts[stretch]
                slices[item] = FlatSlice(number, parameters[item], flat, start + offset)
        return slices
