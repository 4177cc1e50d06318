"""Reduces the gradients of one optimizer while backward computes them.

A hook on each parameter copies the gradient into its bucket, and a full bucket is sent immediately.
If that would only interrupt backward (`overlaps_backward`), the hook takes the gradient for the
step, and ``synchronize`` copies it. ``synchronize`` sends the rest, waits, and sets ``.grad`` to a
view of the result in the bucket. If the script holds a dense gradient, the result is copied to that
gradient instead. In the first two steps hooks send nothing. The order of rank 0's first backward
pass becomes the order of buckets.

In three cases hooks send nothing, because a gradient could be unwanted or incomplete: (1) The
script clears gradients instead of stepping (a GAN's discriminator while the generator trains).
(2) It changes gradients before it steps (clipping). (3) Backward computes a gradient in parts
(reentrant checkpointing). In the last case only that gradient is sent late.

A second hook handles a case that first occurs while gradients are in flight: cleared gradients, or
parts that follow. It runs before autograd adds to a gradient, and keeps autograd from writing to
gradients in flight. If the script itself changes a gradient in flight, that is an error.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringcomm._src.base.errors import HorovodInternalError
from ringcomm._src.observe import timeline
from ringcomm._src.torch.arguments import Settings, format_text
from ringcomm._src.torch.gradient_plan import GradientPlan
from ringcomm._src.torch.held_gradients import release_overlapping
from ringcomm._src.torch.hooked import TOO_MANY_PASSES, HookedParameters
from ringcomm._src.torch.in_flight import GradientInFlight, WatchedGradient
from ringcomm._src.torch.named_gradients import reduce_by_name
from ringcomm._src.torch.nested_backward import backward_id
from ringcomm._src.torch.replicas import ReplicaCheck
from ringcomm._src.torch.slot import HANDED_OVER, NO_GRADIENT, SPLIT, Slot
from ringcomm._src.training.pieces import UNUSED
from ringcomm._src.training.plan_agreement import Agreement, ParameterFacts, agree
from ringcomm._src.training.plans import DROPPED, KEPT, StepPlan

WATCHED_STEPS = 2  # steps before hooks send anything
ORDER_TRIALS = 3


class GradientReducer(HookedParameters):
    """Reduces the gradients of one optimizer. All ranks make one, and synchronise equally often."""

    def __init__(self, settings: Settings, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        self.settings = settings
        self.replicas = ReplicaCheck(settings)
        self._plan: GradientPlan | None = None
        self._residuals: dict[Slot, torch.Tensor] = {}  # residuals while there is no plan
        self._generation = 0
        self._steps = 0
        self._send_early = True  # False once the script has cleared or changed gradients before a step
        self._changed = False  # gradients in flight were changed by the script
        self._first: Slot | None = None  # first slot handed over during backward in this step
        self.used: dict[int, int] = {}  # by id of a parameter: place in the order of use in the forward pass
        self._order_trials = 0  # number of plans that were requested to be by priority
        # Called before backward writes the gradient of a slot, while gradients of the last step are
        # in flight.
        self.before_backward: Callable[[Slot], None] | None = None
        super().__init__(parameters)

    def __del__(self) -> None:
        super().__del__()
        plan = getattr(self, "_plan", None)
        if plan is not None:
            plan.abandon()

    # ---- during backward ---------------------------------------------------------------------------------------------
    def before_gradient(self, slot: Slot) -> None:
        if self.before_backward is not None:
            self.before_backward(slot)
        if self._first is not None and self._cleared():
            self._cancel_sent()
        if slot.state != HANDED_OVER or not slot.will_accumulate():
            return
        if slot.parameter.grad is None:
            self._cancel_sent()
        elif self.in_nested_backward():
            assert self._plan is not None
            self._plan.split(slot)
        else:
            raise AssertionError(TOO_MANY_PASSES.format(name=slot.name))

    def _cleared(self) -> bool:
        """Returns True if the script cleared the first gradient in flight, and so usually all."""
        first = self._first
        return first is not None and first.state == HANDED_OVER and first.parameter.grad is None

    def on_gradient(self, slot: Slot, gradient: torch.Tensor) -> None:
        if slot.state >= HANDED_OVER:  # a later part of the gradient
            return
        if self.fired == 0:
            self.refuse_capture()
        if slot.state == NO_GRADIENT:
            slot.begin(self.fired)
            self.fired += 1
        if self.in_nested_backward():
            slot.in_parts = True
            return
        if not slot.count_pass(gradient):
            self._send_early = False
        if self._steps < WATCHED_STEPS:
            slot.mark(gradient, WatchedGradient)
        if slot.in_parts:
            return
        if slot.passes > self.settings.passes and self.exclusive:  # else a pass may be another optimizer's
            raise AssertionError(TOO_MANY_PASSES.format(name=slot.name))
        if slot.passes == self.settings.passes:
            self._send(slot)

    def _send(self, slot: Slot) -> None:
        plan = self._plan
        if plan is None or not slot.in_plan:
            return
        if timeline.is_recording():
            plan.trace(slot)
        early = self._send_early and self._steps >= WATCHED_STEPS and self.exclusive
        if early and plan.usable() and slot.fits():
            plan.begin()
            if plan.aliased:  # the script may write to gradients undetected
                return
            plan.hand_over(slot)
            self._first = self._first or slot
            gradient = slot.gradient()
            if gradient is not None:
                if slot.stored:
                    slot.watch.record(gradient)
                slot.mark(gradient, GradientInFlight)
            plain = self.settings.passes == 1 and self.before_backward is None and not timeline.is_recording()
            if plain and not plan.overlaps:
                self.quiet_pass = backward_id()

    def wants_order(self) -> bool:
        """Returns True if the next plan is to be by priority, which needs the order of use."""
        if not self.settings.overlap_forward or self._plan is None or self._order_trials == ORDER_TRIALS:
            return False
        return not self._plan.is_by_priority()

    def has_gradients(self) -> bool:
        """Returns True if there were gradients since the last reduction."""
        return self.fired > 0

    def record_changes(self) -> None:
        """Records that the script has changed gradients since backward."""
        self._send_early = False
        self._changed = any(slot.state >= HANDED_OVER for slot in self._slots)

    def _detect_changes(self) -> None:
        for slot in self._slots:
            if slot.state == SPLIT:
                continue
            slot.find_holders()
            if slot.state != NO_GRADIENT and slot.written_to():
                if slot.state == HANDED_OVER:
                    self._changed = True
                elif not slot.in_parts:
                    self._send_early = False
        if self._changed:
            self._send_early = False
        if any(slot.holds_view() for slot in self._slots):
            release_overlapping(self._slots)

    def _cancel_sent(self) -> None:
        """Waits for the buckets sent in this step, drops their results, keeps unsent gradients.

        Raises on all ranks if the script kept some of the sent gradients: they are overwritten.
        """
        assert self._plan is not None
        partly = any(slot.state >= HANDED_OVER and slot.parameter.grad is not None for slot in self._plan.slots)
        kept = {slot for slot in self._plan.slots if slot.state < HANDED_OVER}
        for slot in kept:
            slot.leave_bucket()
        self._send_early = False
        try:
            self._plan.run(kept, DROPPED._replace(changed=partly))
        finally:
            self.restart()

    # ---- the end of a step -------------------------------------------------------------------------------------------
    def synchronize(self, ahead: bool = False) -> GradientPlan | None:
        """Sends the rest, waits, and sets ``.grad`` of parameters with a gradient on any rank.

        `ahead`: may leave gradients in flight. It then returns the plan: call its `take` for each
        bucket, and then `end`. The caller also restarts the slots.
        """
        self.refuse_capture()
        self.claim()
        if self._cleared():
            self._cancel_sent()
        self._detect_changes()
        other = {slot for slot in self._slots if slot.state < HANDED_OVER and not slot.fits()}  # others: see _send()
        self.retire(other)
        self.hook_new()
        wants_new_plan = self._plan is None or self._slots != self._plan.slots
        if self._steps > WATCHED_STEPS and self.wants_order():
            wants_new_plan, self._order_trials = True, self._order_trials + 1
        flags = KEPT
        try:
            if self._plan is not None and self._plan.usable():
                mine = KEPT._replace(
                    wants_new_plan=wants_new_plan,
                    changed=self._changed,
                    compares=self.replicas.due,
                    late=not self._send_early,
                )
                flags = self._plan.run(other, mine, ahead and self.exclusive)
                wants_new_plan = flags.wants_new_plan > 0
                self._send_early = flags.late == 0  # equal on all ranks: they send equally early
            else:
                self._residuals = self.residuals()
                self._plan, wants_new_plan = None, True
            if wants_new_plan:  # equal on all ranks: the flag has been exchanged
                self._make_plan(set() if self._plan is None else set(self._plan.slots) - other)
            self.replicas.step(self._slots, flags.compares > 0)
            self._steps += 1
            if self._plan is not None and self._plan.in_flight:
                return self._plan
            return None
        except HorovodInternalError:
            self._send_early = False  # the script that caused this may do it again
            raise
        finally:
            self.restart()

    def _make_plan(self, reduced: set[Slot]) -> None:
        """Makes a plan for all parameters. Runs it for those not yet reduced in this step."""
        generation = self._generation + 1
        name = f"{self.settings.name}.plan{generation}"
        parameters = [self._describe(slot) for slot in self._slots]
        agreed = agree(parameters, self.settings.text(), name, self.settings.process_set)
        for slot, dim in zip(self._slots, agreed.sparse_dims, strict=True):
            slot.sparse_dim = slot.sparse_dim or dim
        if not agreed.complete:  # all ranks must make a plan together; the next step tries again
            return self._reduce_by_name(reduced, agreed)
        residual = self.residuals()
        with self.settings.process_set.turns.take(agreed.turn):
            if self._plan is not None:
                self._plan.close()
            for plan_id in agreed.abandoned_plans:
                StepPlan.close_abandoned(self.settings.process_set, plan_id)
            self._plan, self._residuals = None, residual
            if StepPlan.fits(self.settings.process_set):
                self._generation = generation
                self._plan = GradientPlan(self.settings, self._slots, name, generation, agreed, self._steps, residual)
        if self._plan is None:
            return self._reduce_without_plan(reduced, agreed)
        self._residuals = {}
        self._plan.run(reduced, KEPT)
        self.replicas.due = True

    def _reduce_by_name(self, reduced: set[Slot], agreed: Agreement) -> None:
        left = [slot for slot in self._slots if slot not in reduced]
        reduce_by_name(self.settings, left, itertools.compress(self._slots, agreed.sparse_dims))

    def _reduce_without_plan(self, reduced: set[Slot], agreed: Agreement) -> None:
        """Reduces by name: the core has no room for a plan. The next step tries again."""
        self._reduce_by_name(reduced, agreed)
        if self._steps == 1:
            warnings.warn(
                "too many DistributedOptimizers exist: the gradients of this one are reduced one at a time, which is "
                "slower. Delete the optimizers that are no longer used",
                stacklevel=4,
            )

    def _describe(self, slot: Slot) -> ParameterFacts:
        seen = slot.describe()._replace(used=self.used.get(id(slot.parameter), UNUSED))
        wire = self.settings.format_of(slot.name, slot.parameter)
        return seen if wire is None else seen._replace(text=f"{seen.text}, sent as {format_text(wire)}")

    def undo(self) -> None:
        """Restores the residuals, because the gradients of the step just reduced are not used."""
        if self._plan is not None:
            self._plan.undo()

    def slots(self) -> list[Slot]:
        return list(self._slots)

    def residuals(self) -> dict[Slot, torch.Tensor]:
        """Returns the residuals by parameter. Call it between steps."""
        return self._residuals if self._plan is None else self._plan.residuals.by_slot()

    def norms(self) -> list[dict[str, Any]]:
        return [] if self._plan is None else self._plan.residuals.norms()

    def restore(self, residual: dict[Slot, torch.Tensor]) -> None:
        """Replaces the residuals. Call it between steps."""
        if self._plan is None:
            self._residuals = residual
        else:
            self._plan.residuals.replace(residual)

    def discard(self) -> None:
        """Drops the gradients of this step; waits for those that have been sent."""
        if any(slot.passes for slot in self._slots):
            self._send_early = False
        try:
            if self._plan is not None and self._plan.in_step and self._plan.usable():
                self._plan.run(set(), DROPPED)
        finally:
            self.restart()

    def restart(self) -> None:
        self.quiet_pass, self.fired, self._changed, self._first = None, 0, False, None
        if self._plan is None or not self._plan.in_flight:
            super().restart()
