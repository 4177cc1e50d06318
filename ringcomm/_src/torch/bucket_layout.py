"""Lays out the gradients of a plan: buckets, their pieces, and their wire formats."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet

import torch

from ringcomm._src.base.ops import wire_code
from ringcomm._src.base.wire_formats import PowerSGD, WireFormat
from ringcomm._src.torch import shared_gradients
from ringcomm._src.torch.arguments import Settings, require_host
from ringcomm._src.torch.bucket_device_memory import memory_on
from ringcomm._src.torch.buckets import Bucket
from ringcomm._src.torch.compression import is_builtin
from ringcomm._src.torch.slot import Slot
from ringcomm._src.training.bucket_limits import (
    assign,
    bucket_limits,
    limits_of_pieces,
    overlaps_backward,
    resolve_auto,
)
from ringcomm._src.training.pieces import Piece, by_first_use, cut, piece_bytes
from ringcomm._src.training.plan_agreement import Agreement
from ringcomm._src.training.plans import BucketShape, BucketWire, LowRank


class BucketLayout:
    """The buckets of these slots, except `sparse` ones, which are reduced without a bucket.

    `pieces` are the buckets' pieces by priority, or None if buckets run in their order. `overlaps`:
    buckets are reduced during the backward pass.
    """

    def __init__(self, settings: Settings, slots: Sequence[Slot], sparse: AbstractSet[Slot], agreed: Agreement) -> None:
        self._settings, self._slots, self._sparse = settings, slots, sparse
        total = sum(slot.like.numel() * slot.like.element_size() for slot in slots)
        on_device = any(not slot.like.is_cpu for slot in slots)
        self.overlaps = on_device or overlaps_backward(settings.process_set)
        self._limits = bucket_limits(settings.process_set, self.overlaps)
        if settings.overlap_forward:
            self._limits = limits_of_pieces(total, self._limits.bytes)
        together = min(self._limits.bytes, total)
        formats = [settings.format_of(slot.name, slot.parameter) for slot in slots]
        resolved = {wire: resolve_auto(wire, settings.process_set, together) for wire in set(formats)}
        self._formats = [resolved[wire] for wire in formats]
        self.buckets = self._make_buckets(agreed.order)
        self.pieces = None if agreed.used is None else self._cut_buckets(agreed.used)

    def shapes(self, steps: int) -> list[BucketShape]:
        """Returns the descriptions of the buckets for a plan that is made after `steps` steps."""
        return [self._shape(bucket, steps) for bucket in self.buckets]

    def _make_buckets(self, order: Sequence[int]) -> list[Bucket]:
        if not is_builtin(self._settings.compression):
            return []
        parameters = [slot.like for slot in self._slots]
        assignment = assign(
            [item for item in order if self._slots[item] not in self._sparse],
            [p.numel() * p.element_size() for p in parameters],
            [(p.dtype, wire, p.device) for p, wire in zip(parameters, self._formats, strict=True)],
            self._groups(),
            self._limits,
        )
        shared, node = shared_gradients.is_enabled(self._settings.process_set), self._settings.process_set.node
        return [
            Bucket.cut(items, parameters, shared, memory_on(parameters[items[0]].device, node)) for items in assignment
        ]

    def _cut_buckets(self, used: Sequence[int]) -> list[Piece] | None:
        """Sorts the buckets by first use, and returns their pieces; None: they are on a device."""
        if any(bucket.memory.on_device for bucket in self.buckets):
            return None
        self.buckets = [self.buckets[number] for number in by_first_use([b.items for b in self.buckets], used)]
        sizes = [sum(bucket.stretches) * bucket.dtype.itemsize for bucket in self.buckets]
        wires = [self._wire(self._formats[bucket.items[0]], 0) for bucket in self.buckets]
        whole = any(wire.compresses() or wire.feedback for wire in wires)  # encoders need complete buckets
        pieces: list[Piece] = []
        for number, (bucket, size) in enumerate(zip(self.buckets, sizes, strict=True)):
            limit = size if whole or len(bucket.stretches) > 1 else piece_bytes(sum(sizes))
            pieces += cut(number, sum(bucket.stretches), bucket.dtype.itemsize, limit)
        return pieces

    def _shape(self, bucket: Bucket, steps: int) -> BucketShape:
        wire, low_rank = self._formats[bucket.items[0]], LowRank()
        if isinstance(wire, PowerSGD):
            require_host(wire, self._slots[bucket.items[0]].parameter)
            matrices = bucket.matrices([slot.like for slot in self._slots])
            low_rank = LowRank(wire.rank, wire.warm_start, matrices)
        return bucket.shape(self._wire(wire, steps), low_rank)

    @staticmethod
    def _wire(wire: WireFormat | torch.dtype | None, steps: int) -> BucketWire:
        if not isinstance(wire, WireFormat):
            return BucketWire(wire_code(wire))
        left = max(0, wire.warmup_steps - steps)
        return BucketWire(wire.code, wire.error_feedback, wire.warmup_format().code if left else 0, left)

    def algorithm(self) -> str | None:
        """Returns an algorithm that sends messages within hosts too if a format needs it, or None."""
        everywhere = any(isinstance(wire, WireFormat) and wire.everywhere for wire in self._formats)
        return "round_robin" if everywhere else None

    def _groups(self) -> list[Hashable | None]:
        """Returns the group of each item; None: no group."""
        groups, count = self._settings.groups, len(self._slots)
        if groups is None:
            return [None] * count
        if isinstance(groups, int):
            return [item * groups // max(count, groups) for item in range(count)]
        of = {id(parameter): number for number, group in enumerate(groups) for parameter in group}
        return [of.get(id(slot.parameter)) for slot in self._slots]
