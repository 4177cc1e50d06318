"""Which gradients travel together, and where they lie.

Which ones share a *bucket*, `bucket_limits.assign` says. All gradients of a bucket have one dtype, and
follow one upon the other in stretches. A big gradient may be a stretch of its own, which lies where autograd made it if
that is in this rank's arena; small ones lie in one flat tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ringcomm._src.core import _core
from ringcomm._src.torch.bucket_memory import BucketMemory
from ringcomm._src.torch.slices import BIG, ApartSlice, Flat, FlatSlice, Memory, Slice, dense_strides, padded
from ringcomm._src.torch.tensors import DTYPES
from ringcomm._src.training.plans import BucketShape, BucketWire, LowRank, StepPlan

MOST_APART = 120  # such stretches of a bucket: ranks tell each other where all of them lie


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
    flats: list[Flat] = field(default_factory=list)
    clears: Sequence[tuple[int, int]] = ()  # gaps that are to hold zeros, which is seen to here

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
        if self.clears:
            torch._foreach_zero_([hole for flat in self.flats for hole in flat.holes])
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
        starts: dict[int, tuple[Flat, int]] = {}  # of stretches that do not lie apart
        if apart or not self.stretches:
            together = [[stretch] for stretch in range(len(self.stretches)) if stretch not in apart]
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
            if stretch in apart:
                slices[item] = ApartSlice(number, parameters[item], memory, stretch, node)
            else:
                flat, start = starts[stretch]
                slices[item] = FlatSlice(number, parameters[item], flat, start + offset)
        return slices
