"""One step's reduction of an optimizer's gradients.

`GradientReducer` runs a plan in each step. Named operations reduce gradients without a bucket.
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
from ringcomm._src.torch.gradient_transforms import GradientTransform
from ringcomm._src.torch.named_gradients import NamedGradients
from ringcomm._src.torch.residuals import PlanResiduals
from ringcomm._src.torch.slices import FlatSlice, Slice
from ringcomm._src.torch.slot import HANDED_OVER, SPLIT, Slot
from ringcomm._src.training.bucket_limits import assign, resolve_auto
from ringcomm._src.training.plan_agreement import Agreement
from ringcomm._src.training.plans import BucketShape, BucketWire, Flags, LowRank, Presence, StepPlan


class GradientPlan:
    """The plan for the parameters that were trainable when the plan was made. Collective."""

    def __init__(
        self,
        settings: Settings,
        slots: Sequence[Slot],
        name: str,
        generation: int,
        agreed: Agreement,
        steps: int = 0,
        residual: dict[Slot, torch.Tensor] | None = None,
    ) -> None:
        """Makes the plan after `steps` steps. `residual`: residuals of the previous plan."""
        self._settings = settings
        self.slots = list(slots)  # index = item of the plan
        together = min(settings.limits.bytes, sum(s.like.numel() * s.like.element_size() for s in self.slots))
        formats = [settings.format_of(slot.name, slot.parameter) for slot in self.slots]
        resolved = {wire: resolve_auto(wire, settings.process_set, together) for wire in set(formats)}
        self._formats = [resolved[wire] for wire in formats]
        sparse = list(itertools.compress(self.slots, agreed.sparse_dims))
        self._sparse = set() if settings.sparse_as_dense else set(sparse)
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
        scales = settings.scales()[0], settings.residual_scale()
        self.residuals = PlanResiduals(self._plan.feedback(), self.slots, self._buckets, residual or {}, *scales)
        self._transforms: list[GradientTransform] = [*settings.transforms, self.residuals]
        self._lay_out()
        # Items in the order of synchronize(): those of the buckets, then those without a bucket.
        self._sequence = [item for bucket in self._buckets for item in bucket.items]
        self._sequence += [item for item, slot in enumerate(self.slots) if slot.slice is None]
        self._members = set(self.slots)
        names = [[self.slots[item].name for item in bucket.items] for bucket in self._buckets]
        timeline.describe({f"plan/{name}/{number}": members for number, members in enumerate(names)})
        self.in_step = False
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
        shared, node = shared_gradients.is_enabled(self._settings.process_set), self._settings.process_set.node
        return [
            Bucket.cut(items, parameters, shared, memory_on(parameters[items[0]].device, node)) for items in assignment
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
        return BucketWire(wire.code, wire.error_feedback, wire.warmup_format().code if left else 0, left)

    def _algorithm(self) -> str | None:
        """Returns an algorithm that sends messages within hosts too if a format needs it, or None."""
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
        """Requests that the plan be closed once all ranks have abandoned it."""
        self._plan.abandon(None if not self.in_step else self._memory())

    def _memory(self) -> list[object]:
        """Returns the memory that the core and other ranks may be reading or writing."""
        return [self._buckets, [slot.slice.memory_in_use() for slot in self.slots if slot.slice is not None]]

    def begin(self) -> None:
        if not self.in_step:
            change = self._settings.units.change()
            for transform in self._transforms:
                transform.begin(change)
            for bucket in self._buckets:
                bucket.memory.begin()
            self._replace_kept_flats()
            self._by_name.begin()
            self._plan.begin()
            self.in_step = True
            self._left = [len(bucket.items) for bucket in self._buckets]

    def _replace_kept_flats(self) -> None:
        """Replaces flat tensors with gradients that a script still uses. Sets `aliased`."""
        kept = {part: slot for slot, part in self._in_flats if part.is_kept() and slot.parameter.grad is not part.view}
        self.aliased = False
        for bucket in self._buckets:
            for flat in bucket.flats:
                holders = [kept[part] for part in flat.slices if part in kept]
                if flat.is_aliased():
                    own = [(slot, part) for slot, part in self._in_flats if part.flat is flat]
                    cleared = [slot for slot, part in own if slot.parameter.grad is not part.view]
                    self.aliased = self.aliased or len(cleared) < len(own)
                    holders += cleared
                if holders:
                    flat.renew()
                for slot in holders:
                    slot.exposes_view = False

    def hand_over(self, slot: Slot) -> bool:
        """Puts the gradient into its bucket, or submits it by name. Returns True if it exists."""
        slot.hand_over()
        if slot.slice is None:
            gradient = slot.gradient()
            if gradient is not None:
                self._by_name.start(slot, gradient)
            return gradient is not None
        has_gradient = slot.store()
        for transform in self._transforms:
            transform.apply(slot, has_gradient)
        number = slot.slice.bucket
        bucket = self._buckets[number]
        bucket.memory.record_write()
        self._left[number] -= 1
        if self._left[number] == 0:
            bucket.ready(self._plan, number)
        return has_gradient

    def run(self, skip: AbstractSet[Slot], mine: Flags) -> Flags:
        """Reduces the other gradients except those in `skip`. Sets ``.grad`` if `mine.kept`.

        `mine`: this rank's flags; `split` is set here. Returns the number of ranks with each flag.
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
        self.in_step = False
        try:
            ranks_with, ranks_with_sparse, flags = self._plan.finish(present, mine._replace(split=bool(rests)))
        except Exception:
            self._plan.keep(self._memory())
            raise
        for bucket in self._buckets:
            bucket.memory.join()
        self._undo_unused(ranks_with, flags)
        # All ranks collect the same gradients, also after a failure, so none stays in flight.
        named = [slot for slot, count in zip(self.slots, ranks_with, strict=True) if slot.slice is None and count]
        collected = self._by_name.finish([slot for slot in named if mine.dropped or slot not in skip])
        self._require_usable(flags)
        if mine.kept:
            for slot, gradient in collected.items():
                slot.parameter.grad = gradient
            for item, slot in enumerate(self.slots):
                if slot.slice is not None and slot not in skip and ranks_with[item]:
                    slot.deliver(ranks_with_sparse[item] > 0)
                    for transform in self._transforms:
                        transform.delivered(slot)
            if flags.split:
                self._add_rests(rests)
        for slot in self.slots:
            if slot.slice is not None:
                slot.slice.release()
        return flags

    def _undo_unused(self, ranks_with: Sequence[int], flags: Flags) -> None:
        """Restores the residuals of gradients that were sent but are not used."""
        if flags.dropped or flags.changed:
            return self.undo()
        unused = [slot for slot, count in zip(self.slots, ranks_with, strict=True) if count == 0]
        for transform in self._transforms:
            transform.undo_items(unused)

    def undo(self) -> None:
        """Restores the residuals, because the gradients of the step just reduced are not used."""
        for transform in self._transforms:
            transform.undo()

    def _require_usable(self, flags: Flags) -> None:
        """Raises the same error on every rank if the step cannot be used."""
        if flags.dropped and flags.kept:
            raise errors.HorovodInternalError(
                "Some ranks dropped the gradients of this step (zero_grad() after backward, without step()), and other "
                "ranks stepped. All ranks must take the same decision: call optimizer.synchronize() before the script "
                "reads gradients."
            )
        if flags.changed:
            raise errors.HorovodInternalError(
                f"The script of {flags.changed} rank(s) changed gradients between backward() and step(), while they "
                "were being sent to the other ranks. To clip or unscale gradients, call optimizer.synchronize() first, "
                "then change them, then step within optimizer.skip_synchronize()."
            )
        if flags.split and self._settings.op not in (Average, Sum):
            raise errors.HorovodInternalError(
                "Backward added to gradients that were already being sent (reentrant checkpointing), which only "
                "op=Average and op=Sum support. Later steps send these gradients after backward, and do not fail."
            )

    def _add_rests(self, rests: Mapping[Slot, torch.Tensor | None]) -> None:
        """Adds parts that a rank computed after the bucket was sent. They are reduced by name."""
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
