"""One step's reduction of an optimizer's gradients.

`GradientReducer` runs a plan in each step. Gradients that buckets do not support go by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch

from ringcomm._src.base import errors
from ringcomm._src.base.ops import Average, Sum, wire_code
from ringcomm._src.base.wire_formats import PowerSGD, WireFormat
from ringcomm._src.observe import timeline
from ringcomm._src.torch import shared_gradients
from ringcomm._src.torch.arguments import Settings, require_host
from ringcomm._src.torch.asynchronous import operations
from ringcomm._src.torch.bucket_device_memory import memory_on
from ringcomm._src.torch.buckets import Bucket
from ringcomm._src.torch.compression import is_builtin
from ringcomm._src.torch.held_back import HeldBack
from ringcomm._src.torch.named_gradients import NamedGradients
from ringcomm._src.torch.slices import FlatSlice, Slice
from ringcomm._src.torch.slot import HANDED_OVER, SPLIT, Slot
from ringcomm._src.torch.travel import GradientTransform
from ringcomm._src.training.bucket_limits import assign, decided
from ringcomm._src.training.plan_agreement import Agreed
from ringcomm._src.training.plans import BucketShape, BucketWire, Flags, LowRank, Presence, StepPlan


class GradientPlan:
    """The plan for the parameters that were trainable when it was made. All ranks make it together."""

    def __init__(
        self,
        settings: Settings,
        slots: Sequence[Slot],
        name: str,
        generation: int,
        agreed: Agreed,
        steps: int = 0,
        residual: dict[Slot, torch.Tensor] | None = None,
    ) -> None:
        """Makes the plan. `steps`: steps that the optimizer has taken; `residual`: residuals of the previous plan."""
        self._settings = settings
        self.slots = list(slots)  # index = item of the plan
        together = min(settings.limits.bytes, sum(s.like.numel() * s.like.element_size() for s in self.slots))
        formats = [settings.format_of(slot.name, slot.parameter) for slot in self.slots]
        one = {wire: decided(wire, settings.process_set, together) for wire in set(formats)}
        self._formats = [one[wire] for wire in formats]
        sparse = set(itertools.compress(self.slots, agreed.sparse_dims))
        self._sparse = set() if settings.sparse_as_dense else sparse
        self._buckets = self._make_buckets(agreed.order)
        self._left: list[int] = []  # by bucket: gradients not handed over yet
        self._by_name = NamedGradients(settings, sparse)
        self._plan = StepPlan(
            settings.process_set,
            (settings.number, generation),
            name,
            [self._shape(bucket, steps) for bucket in self._buckets],
            len(self.slots),
            settings.op,
            settings.scales(),
            settings.algorithm or self._algorithm(),
        )
        measures = settings.scales()[0], settings.worth()
        self.held_back = HeldBack(self._plan.feedback(), self.slots, self._buckets, residual or {}, *measures)
        self._before_travel: list[GradientTransform] = [*settings.before_travel, self.held_back]
        self._lay_out()
        # Items in the order of synchronize(): those of the buckets, then those without a bucket.
        self._sequence = [item for bucket in self._buckets for item in bucket.items]
        self._sequence += [item for item, slot in enumerate(self.slots) if slot.slice is None]
        self._members = set(self.slots)
        timeline.describe(
            {
                f"plan/{name}/{number}": [self.slots[item].name for item in bucket.items]
                for number, bucket in enumerate(self._buckets)
            }
        )
        self.begun = False
        self.aliased = False  # a script references memory of gradients that it has not cleared

    def _make_buckets(self, order: Sequence[int]) -> list[Bucket]:
        if not is_builtin(self._settings.compression):
            return []
        parameters = [slot.like for slot in self.slots]
        assignment = assign(
            [item for item in order if self.slots[item] not in self._sparse],
            [p.numel() * p.element_size() for p in parameters],
            [(p.dtype, wire, p.device) for p, wire in zip(parameters, self._formats, strict=True)],
            self._groups(),
            self._settings.limits,
        )
        apart, node = shared_gradients.wanted(self._settings.process_set), self._settings.process_set.node
        return [
            Bucket.cut(items, parameters, apart, memory_on(parameters[items[0]].device, node)) for items in assignment
        ]

    def _shape(self, bucket: Bucket, steps: int) -> BucketShape:
        wire, low_rank = self._formats[bucket.items[0]], LowRank()
        if isinstance(wire, PowerSGD):
            require_host(wire, self.slots[bucket.items[0]].parameter)
            matrices = bucket.matrices([slot.like for slot in self.slots])
            low_rank = LowRank(wire.rank, wire.warm_start, matrices)
        return bucket.shape(self._wire(wire, steps), low_rank)

    @staticmethod
    def _wire(wire: WireFormat | torch.dtype | None, steps: int) -> BucketWire:
        if not isinstance(wire, WireFormat):
            return BucketWire(wire_code(wire))
        left = max(0, wire.warmup_steps - steps)
        return BucketWire(wire.code, wire.error_feedback, wire.first().code if left else 0, left)

    def _algorithm(self) -> str | None:
        """Returns an algorithm that sends messages even within a host if a format is to be used there; else None."""
        everywhere = any(isinstance(wire, WireFormat) and wire.everywhere for wire in self._formats)
        return "round_robin" if everywhere else None

    def _lay_out(self) -> None:
        parameters, node = [slot.like for slot in self.slots], self._settings.process_set.node
        slices: dict[int, Slice] = {}
        for number, bucket in enumerate(self._buckets):
            slices |= bucket.lay_out(number, parameters, self._plan, node)
        for item, slot in enumerate(self.slots):
            slot.slice = slices.get(item)
        self._in_flats = [(slot, slot.slice) for slot in self.slots if isinstance(slot.slice, FlatSlice)]

    def _groups(self) -> list[Hashable | None]:
        """Returns the group of each item; None: no group."""
        groups, count = self._settings.groups, len(self.slots)
        if groups is None:
            return [None] * count
        if isinstance(groups, int):
            return [item * groups // max(count, groups) for item in range(count)]
        of = {id(parameter): number for number, group in enumerate(groups) for parameter in group}
        return [of.get(id(slot.parameter)) for slot in self.slots]

    def usable(self) -> bool:
        """Returns False once ``shutdown()`` has been called."""
        return self._plan.usable()

    def holds(self, slot: Slot) -> bool:
        return slot in self._members

    def close(self) -> None:
        """Closes the plan. All ranks call it at the same point of their program, between steps."""
        self._plan.close()

    def abandon(self) -> None:
        """Requests that the plan be closed once all ranks have abandoned it. The optimizer no longer exists."""
        self._plan.abandon(None if not self.begun else self._memory())

    def _memory(self) -> list[object]:
        """Returns the memory that the core and other ranks may be reading or writing."""
        return [self._buckets, [slot.slice.travelling() for slot in self.slots if slot.slice is not None]]

    def begin(self) -> None:
        if not self.begun:
            change = self._settings.units.change()
            for one in self._before_travel:
                one.begin(change)
            for bucket in self._buckets:
                bucket.memory.begin()
            self._leave_kept()
            self._plan.begin()
            self.begun = True
            self._left = [len(bucket.items) for bucket in self._buckets]

    def _leave_kept(self) -> None:
        """Replaces flat tensors in which a script still holds gradients of earlier steps, and sets `aliased`."""
        kept = {one: slot for slot, one in self._in_flats if one.is_kept() and slot.parameter.grad is not one.view}
        self.aliased = False
        for bucket in self._buckets:
            for flat in bucket.flats:
                holders = [kept[one] for one in flat.slices if one in kept]
                if flat.is_aliased():
                    own = [(slot, one) for slot, one in self._in_flats if one.flat is flat]
                    cleared = [slot for slot, one in own if slot.parameter.grad is not one.view]
                    self.aliased = self.aliased or len(cleared) < len(own)
                    holders += cleared
                if holders:
                    flat.renew()
                for slot in holders:
                    slot.lends = False

    def hand_over(self, slot: Slot) -> bool:
        """Marks the gradient as complete for this step, so that it may be sent. Returns True if there is one."""
        slot.hand_over()
        if slot.slice is None:
            gradient = slot.gradient()
            if gradient is not None:
                self._by_name.start(slot, gradient)
            return gradient is not None
        had = slot.store()
        for one in self._before_travel:
            one.apply(slot, had)
        number = slot.slice.bucket
        bucket = self._buckets[number]
        bucket.memory.written()
        self._left[number] -= 1
        if self._left[number] == 0:
            bucket.ready(self._plan, number)
        return had

    def run(self, skip: AbstractSet[Slot], mine: Flags) -> Flags:
        """Reduces the rest of the step except `skip`, waits, and sets ``.grad`` to the results unless they are dropped.
        `mine`: this rank's flags, except for `split`. Returns the number of ranks with each flag.
        """
        self.begin()
        present = Presence(len(self.slots))
        for item in self._sequence:
            slot = self.slots[item]
            if slot in skip:
                if slot.slice is not None:
                    slot.slice.clear()
            elif slot.state >= HANDED_OVER or self.hand_over(slot):
                present.here[item] = 1
                present.sparse[item] = slot.parameter.grad is not None and slot.parameter.grad.is_sparse
        for number, bucket in enumerate(self._buckets):
            if self._left[number] > 0:  # some of its gradients are skipped
                bucket.ready(self._plan, number)
        rests = {slot: slot.parameter.grad for slot in self.slots if slot.state == SPLIT and mine.kept}
        self.begun = False
        try:
            ranks_with, ranks_with_sparse, flags = self._plan.finish(present, mine._replace(split=bool(rests)))
        except Exception:
            self._plan.keep(self._memory())
            raise
        for bucket in self._buckets:
            bucket.memory.join()
        self._take_back(ranks_with, flags)
        # All ranks collect the same gradients even after failures, so no name stays in flight.
        collected = self._by_name.finish(
            [
                s
                for i, s in enumerate(self.slots)
                if s.slice is None and ranks_with[i] and (mine.dropped or s not in skip)
            ]
        )
        self._refuse(flags)
        if mine.kept:
            for slot, gradient in collected.items():
                slot.parameter.grad = gradient
            for item, slot in enumerate(self.slots):
                if slot.slice is not None and slot not in skip and ranks_with[item]:
                    slot.deliver(ranks_with_sparse[item] > 0)
                    for one in self._before_travel:
                        one.delivered(slot)
            if flags.split:
                self._add_rests(rests)
        for slot in self.slots:
            if slot.slice is not None:
                slot.slice.release()
        return flags

    def _take_back(self, ranks_with: Sequence[int], flags: Flags) -> None:
        """Restores the residuals of gradients that were sent but are not used."""
        if flags.dropped or flags.changed:
            return self.undo()
        unused = [slot for slot, count in zip(self.slots, ranks_with, strict=True) if count == 0]
        for one in self._before_travel:
            one.undo_items(unused)

    def undo(self) -> None:
        """Restores the residuals, because the gradients of the step just reduced are not used."""
        for one in self._before_travel:
            one.undo()

    def _refuse(self, flags: Flags) -> None:
        """Raises the same error on every rank if the step cannot be used."""
        if flags.dropped and flags.kept:
            raise errors.HorovodInternalError(
                "Some ranks dropped the gradients of this step (zero_grad() after backward, without step()), others "
                "stepped. Whether a step is taken must be decided by what all ranks know: call optimizer.synchronize() "
                "before looking at the gradients."
            )
        if flags.changed:
            raise errors.HorovodInternalError(
                f"The script of {flags.changed} rank(s) changed gradients between backward() and step(), while they "
                "were on their way to the other ranks. To clip or unscale gradients, call optimizer.synchronize() "
                "first, then change them, then step within optimizer.skip_synchronize()."
            )
        if flags.split and self._settings.op not in (Average, Sum):
            raise errors.HorovodInternalError(
                "More came to gradients that were on their way (from reentrant checkpointing), which only op=Average "
                "and op=Sum can add. This concerns the first such step only."
            )

    def _add_rests(self, rests: Mapping[Slot, torch.Tensor | None]) -> None:
        """Adds parts that missed their bucket on any rank; being rare, they are reduced by name."""
        name, process_set = f"{self._settings.name}.rest", self._settings.process_set
        mine = torch.tensor([item for item, slot in enumerate(self.slots) if slot in rests], dtype=torch.int64)
        items = sorted(set(operations.allgather_async(mine, name, process_set).wait().tolist()))
        slots = [self.slots[item] for item in items]
        for slot in slots:
            rest = rests.get(slot)
            if rest is not None:
                self._by_name.start(slot, rest, "rest.")
        for slot, reduced in self._by_name.finish(slots, "rest.").items():
            slot.add(reduced)
