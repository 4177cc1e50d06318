"""One step's reduction of an optimizer's gradients.

`GradientReducer` runs a plan in each step. Named operations reduce gradients without a bucket.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress

import torch

from ringcomm._src.base.errors import HorovodInternalError
from ringcomm._src.observe import timeline
from ringcomm._src.torch.arguments import Settings
from ringcomm._src.torch.bucket_layout import BucketLayout
from ringcomm._src.torch.gradient_transforms import GradientTransform
from ringcomm._src.torch.named_gradients import NamedGradients
from ringcomm._src.torch.residuals import PlanResiduals
from ringcomm._src.torch.slices import FlatSlice, Slice
from ringcomm._src.torch.slot import HANDED_OVER, SPLIT, Slot
from ringcomm._src.training.plan_agreement import Agreement
from ringcomm._src.training.plans import Flags, Outcome, Presence, StepPlan, require_usable


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
        sparse = list(itertools.compress(self.slots, agreed.sparse_dims))
        layout = BucketLayout(settings, self.slots, set() if settings.sparse_as_dense else set(sparse), agreed)
        self._buckets = layout.buckets
        self._left: list[int] = []  # by bucket: gradients not handed over yet
        self._by_name = NamedGradients(settings, sparse)
        self._plan = StepPlan(
            settings.process_set,
            (settings.number, generation),
            name,
            layout.shapes(steps),
            len(self.slots),
            settings.op,
            settings.scales(),
            settings.algorithm or layout.algorithm(),
            layout.pieces,
            layout.overlaps,
        )
        self.overlaps = layout.overlaps
        self._row = f"plan/{name}"
        scales, feedback = (settings.scales()[0], settings.residual_scale()), self._plan.feedback()
        self._has_feedback = feedback is not None
        self.residuals = PlanResiduals(feedback, self.slots, self._buckets, residual or {}, *scales)
        self._transforms: list[GradientTransform] = [*settings.transforms, self.residuals]
        self._acting: list[GradientTransform] = []  # those that act in this step
        self._lay_out()
        # Items in the order of synchronize(): those of the buckets, then those without a bucket.
        self._sequence = [item for bucket in self._buckets for item in bucket.items]
        self._sequence += [item for item, slot in enumerate(self.slots) if slot.slice is None]
        names = [[self.slots[item].name for item in bucket.items] for bucket in self._buckets]
        buckets = range(len(names)) if layout.pieces is None else [piece.bucket for piece in layout.pieces]
        timeline.describe({f"{self._row}/{number}": names[bucket] for number, bucket in enumerate(buckets)})
        self.in_step = False
        self.in_flight: set[int] = set()  # buckets of the step that `run` has left in flight
        self._ranks_with: list[int] = []
        self.aliased = False  # a script references memory of gradients that it has not cleared

    def _lay_out(self) -> None:
        parameters, node = [slot.like for slot in self.slots], self._settings.process_set.node
        slices: dict[int, Slice] = {}
        for number, bucket in enumerate(self._buckets):
            slices |= bucket.lay_out(number, parameters, self._plan, node)
        for item, slot in enumerate(self.slots):
            slot.slice, slot.in_plan = slices.get(item), True
        self._in_flats = [(slot, slot.slice) for slot in self.slots if isinstance(slot.slice, FlatSlice)]

    def usable(self) -> bool:
        """Returns False once ``shutdown()`` has been called."""
        return self._plan.usable()

    def close(self) -> None:
        """Closes the plan. All ranks call it at the same point of their program, between steps."""
        self._plan.close()

    def abandon(self) -> None:
        """Requests that the plan be closed once all ranks have abandoned it."""
        self._plan.abandon(self._memory() if self.in_step or self.in_flight else None)

    def _memory(self) -> list[object]:
        """Returns the memory that the core and other ranks may be reading or writing."""
        return [self._buckets, [slot.slice.memory_in_use() for slot in self.slots if slot.slice is not None]]

    def begin(self) -> None:
        if not self.in_step:
            change = self._settings.units.change()
            for transform in self._transforms:
                transform.begin(change)
            self._acting = [transform for transform in self._transforms if transform.acts()]
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

    def trace(self, slot: Slot) -> None:
        """Adds to the timeline that the gradient is complete now."""
        if slot.slice is not None:
            like = slot.like
            timeline.mark(self._row, "gradient", slot.name, bytes=like.numel() * like.element_size())

    def hand_over(self, slot: Slot) -> None:
        """Takes the gradient for this step: now if buckets overlap backward, else in `run`."""
        slot.hand_over()
        if self.overlaps:
            self._store_in_hook(slot)

    def split(self, slot: Slot) -> None:
        """Clears ``.grad`` of a gradient that was handed over: it receives only later parts."""
        if not slot.stored:
            self._store_in_hook(slot)
        slot.split()

    def _store_in_hook(self, slot: Slot) -> None:
        self._store(slot)
        if slot.slice is not None:
            self._buckets[slot.slice.bucket].memory.end_hook()

    def _store(self, slot: Slot) -> bool:
        """Puts the gradient into its bucket, or submits it by name. Returns True if it exists."""
        if slot.slice is None:
            gradient = slot.gradient()
            slot.stored = True
            if gradient is not None:
                self._by_name.start(slot, gradient)
            return gradient is not None
        has_gradient = slot.store()
        for transform in self._acting:
            transform.apply(slot, has_gradient)
        number = slot.slice.bucket
        self._left[number] -= 1
        if self._left[number] == 0:
            self._buckets[number].ready(self._plan, number)
        return has_gradient

    def run(self, skip: AbstractSet[Slot], mine: Flags, ahead: bool = False) -> Flags:
        """Reduces the other gradients except those in `skip`. Sets ``.grad`` if `mine.kept`.

        `mine`: this rank's flags; `split` is set here. Returns the number of ranks with each flag.
        `ahead`: buckets may still be `in_flight` then, if nothing in this step needs all of them.
        """
        self.begin()
        present = Presence(len(self.slots))
        for item in self._sequence:
            slot = self.slots[item]
            if slot in skip or (mine.changed and not slot.stored):  # no rank uses results of a changed step
                if slot.slice is not None:
                    slot.slice.clear()
                continue
            if slot.state < HANDED_OVER:
                slot.hand_over()
            if slot.stored or self._store(slot):
                present.here[item] = 1
                if slot.sparse_dim and slot.parameter.grad is not None:
                    present.sparse[item] = slot.parameter.grad.is_sparse
        for number, bucket in enumerate(self._buckets):
            if self._left[number] > 0:  # some of its gradients are skipped
                bucket.ready(self._plan, number)
        rests = {slot: slot.parameter.grad for slot in self.slots if slot.state == SPLIT and mine.kept}
        self.in_step = False
        with self._memory_kept():
            self._plan.send_rest(present, mine._replace(split=bool(rests)))
            if ahead and not skip and self._plan.by_priority:
                outcome = self._plan.wait_for_counts()
                if self._is_plain(outcome):
                    self.in_flight, self._ranks_with = set(range(len(self._buckets))), outcome.present
                    return outcome.flags
            ranks_with, ranks_with_sparse, flags = self._plan.wait()
        for bucket in self._buckets:
            bucket.memory.join()
        self._undo_unused(ranks_with, flags)
        # All ranks collect the same gradients, also after a failure, so none stays in flight.
        named = [slot for slot, count in zip(self.slots, ranks_with, strict=True) if slot.slice is None and count]
        collected = self._by_name.finish([slot for slot in named if mine.dropped or slot not in skip])
        require_usable(flags, self._settings.op)
        if mine.kept:
            for slot, gradient in collected.items():
                slot.set_gradient(gradient)
            for item, slot in enumerate(self.slots):
                if slot.slice is not None and slot not in skip and ranks_with[item]:
                    self._deliver(slot, ranks_with_sparse[item] > 0)
            if flags.split:
                self._by_name.add_rests(self.slots, rests)
        for slot in self.slots:
            if slot.slice is not None:
                slot.slice.release()
        return flags

    def _deliver(self, slot: Slot, sparse: bool = False) -> None:
        slot.deliver(sparse)
        for transform in self._acting:
            transform.delivered(slot)

    @contextmanager
    def _memory_kept(self) -> Iterator[None]:
        """Keeps the memory of the step if it fails."""
        try:
            yield
        except Exception:
            self.in_flight = set()
            self._plan.keep(self._memory())
            raise

    def _is_plain(self, outcome: Outcome) -> bool:
        """Returns True if nothing but buckets is missing for this step. Equal on all ranks."""
        present, sparse, flags = outcome
        named = any(slot.slice is None and count for slot, count in zip(self.slots, present, strict=True))
        undone = self._has_feedback and 0 in present
        return not named and not any(sparse) and not undone and flags == Flags(kept=flags.kept)

    def is_by_priority(self) -> bool:
        return self._plan.by_priority

    def bucket_of(self, slot: Slot) -> int:
        assert slot.slice is not None
        return slot.slice.bucket

    def take(self, bucket: int) -> None:
        """Waits for a bucket that is in flight. Sets ``.grad`` of its parameters, as `run` does."""
        with self._memory_kept():
            self._plan.wait_for_bucket(bucket)
        self.in_flight.discard(bucket)
        for item in self._buckets[bucket].items:
            slot = self.slots[item]
            if self._ranks_with[item]:
                self._deliver(slot)
            assert slot.slice is not None
            slot.slice.release()

    def end(self) -> None:
        """Ends a step, all buckets of which have been taken."""
        with self._memory_kept():
            self._plan.wait()

    def drop(self) -> None:
        """Waits for buckets in flight, or for their failure, and drops the results."""
        if self.in_flight:
            self.in_flight = set()
            with suppress(HorovodInternalError), self._memory_kept():
                self._plan.wait()

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
