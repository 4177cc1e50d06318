"""Reduces the gradients of one optimizer while backward computes them.

A hook on each parameter copies the gradient into its bucket, and a full bucket is sent immediately.
``synchronize`` sends the rest, waits, and puts the results into ``.grad``: as views of the buckets
where no script holds a dense gradient, else as copies.
The first two steps only observe. The first one's order on rank 0 stays the order of the buckets.

In three cases only ``synchronize`` sends, so that no unwanted or incomplete gradient is sent. A
script clears them instead of stepping (a GAN's discriminator while the generator trains). It
changes them before it steps (clipping). Or a gradient comes in parts (reentrant checkpointing);
then only that parameter is sent late.

If a script does so first in a later step, clearing and parts are corrected then: a second hook, run
before a gradient is added to, keeps autograd from writing to gradients in flight. Changes to
gradients in flight are an error.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ringcomm._src.base.errors import HorovodInternalError
from ringcomm._src.torch.arguments import Settings, format_text
from ringcomm._src.torch.gradient_plan import GradientPlan
from ringcomm._src.torch.hooked import TOO_OFTEN, HookedParameters
from ringcomm._src.torch.in_flight import GradientInFlight, WatchedGradient
from ringcomm._src.torch.named_gradients import reduce_by_name
from ringcomm._src.torch.replicas import ReplicaCheck
from ringcomm._src.torch.slot import HANDED_OVER, QUIET, SPLIT, Slot
from ringcomm._src.training.plan_agreement import Agreed, Watched, agree
from ringcomm._src.training.plans import DROPPED, KEPT, StepPlan

WATCHED_STEPS = 2  # steps before hooks send anything


class GradientReducer(HookedParameters):
    """Reduces the gradients of one optimizer. New parameters join the plan at the end of a step.
    All ranks of the process set make one for the same parameters, and synchronize equally often.
    """

    def __init__(self, settings: Settings, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        self.settings = settings
        self.replicas = ReplicaCheck(settings)
        self._plan: GradientPlan | None = None
        self._owed: dict[Slot, torch.Tensor] = {}  # residuals while there is no plan
        self._generation = 0
        self._steps = 0
        self._send_early = True  # False: gradients here were cleared or changed before
        self._fired = 0
        self._changed = False  # gradients in flight were changed by the script
        self._first: Slot | None = None  # first slot handed over during backward in this step
        super().__init__(parameters)

    def __del__(self) -> None:
        super().__del__()
        plan = getattr(self, "_plan", None)
        if plan is not None:
            plan.abandon()

    # ---- during backward ---------------------------------------------------------------------------------------------
    def before_gradient(self, slot: Slot) -> None:
        if self._first is not None and self._cleared():
            self._take_back()
        if slot.state != HANDED_OVER or not slot.will_accumulate():
            return
        if slot.parameter.grad is None:
            self._take_back()
        elif self.in_nested_backward():
            slot.split()
        else:
            raise AssertionError(TOO_OFTEN.format(name=slot.name))

    def _cleared(self) -> bool:
        """Returns True if the script cleared the first gradient in flight. It usually clears all.
        If it clears other ones only, `before_gradient` detects that when these get new gradients.
        """
        first = self._first
        return first is not None and first.state == HANDED_OVER and first.parameter.grad is None

    def on_gradient(self, slot: Slot, gradient: torch.Tensor) -> None:
        if slot.state >= HANDED_OVER:  # a later part of the gradient
            return
        if self._fired == 0:
            self.refuse_capture()
        if slot.state == QUIET:
            slot.begin(self._fired)
            self._fired += 1
        if self.in_nested_backward():
            slot.in_parts = True
            return
        if not slot.count_pass(gradient):
            self._send_early = False
        if self._steps < WATCHED_STEPS:
            slot.mark(gradient, WatchedGradient)
        if slot.in_parts:
            return
        if slot.passes > self.settings.passes and self.alone:  # or they may belong to another optimizer
            raise AssertionError(TOO_OFTEN.format(name=slot.name))
        if slot.passes == self.settings.passes:
            self._send(slot)

    def _send(self, slot: Slot) -> None:
        plan = self._plan
        early = self._send_early and self._steps >= WATCHED_STEPS and self.alone
        if early and plan is not None and plan.usable() and plan.holds(slot) and slot.fits():
            plan.begin()
            if plan.aliased:  # the script may write to gradients undetected
                return
            plan.hand_over(slot)
            self._first = self._first or slot
            gradient = slot.gradient()
            if gradient is not None:
                slot.watch.look(gradient)
                slot.mark(gradient, GradientInFlight)

    def has_gradients(self) -> bool:
        """Returns True if there were gradients since the last reduction."""
        return self._fired > 0

    def told_of_changes(self) -> None:
        """Records that the script has changed gradients since backward."""
        self._send_early = False
        self._changed = any(slot.state >= HANDED_OVER for slot in self._slots)

    def _look_for_changes(self) -> None:
        for slot in self._slots:
            if QUIET < slot.state < SPLIT and slot.written_to():
                if slot.state == HANDED_OVER:
                    self._changed = True
                elif not slot.in_parts:
                    self._send_early = False
        if self._changed:
            self._send_early = False

    def _take_back(self) -> None:
        """Waits for the buckets sent in this step and drops their results; later gradients are kept.
        Raises on all ranks if the script cleared only some of them: the rest has been overwritten.
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
    def synchronize(self) -> None:
        """Sends the remaining gradients, waits for all, and sets every ``.grad`` to the reduced gradient.
        A parameter with a gradient on any rank then has one on all ranks. Others keep ``.grad``.
        """
        self.refuse_capture()
        self.claim()
        if self._cleared():
            self._take_back()
        self._look_for_changes()
        other = {slot for slot in self._slots if slot.state < HANDED_OVER and not slot.fits()}  # _send checks the rest
        self.retire(other)
        self.hook_new()
        wants_new_plan = self._plan is None or self._slots != self._plan.slots
        reduced: set[Slot] = set()
        flags = KEPT
        try:
            if self._plan is not None and self._plan.usable():
                mine = KEPT._replace(
                    wants_new_plan=wants_new_plan,
                    changed=self._changed,
                    compares=self.replicas.due,
                    late=not self._send_early,
                )
                flags = self._plan.run(other, mine)
                wants_new_plan = flags.wants_new_plan > 0
                self._send_early = flags.late == 0  # equal on all ranks, so that all begin the same steps
                reduced = set(self._plan.slots) - other
            else:
                self._owed = self.held_back()
                self._plan, wants_new_plan = None, True
            if wants_new_plan:  # equal on all ranks: the flag has been exchanged
                self._renew(reduced)
            self.replicas.step(self._slots, flags.compares > 0)
            self._steps += 1
        except HorovodInternalError:
            self._send_early = False  # the script that caused this may do it again
            raise
        finally:
            self.restart()

    def _renew(self, reduced: set[Slot]) -> None:
        """Makes a plan for all parameters, and uses it for those not yet reduced in this step."""
        generation = self._generation + 1
        name = f"{self.settings.name}.plan{generation}"
        watched = [self._watched(slot) for slot in self._slots]
        agreed = agree(watched, self.settings.text(), name, self.settings.process_set)
        for slot, dim in zip(self._slots, agreed.sparse_dims, strict=True):
            slot.sparse_dim = slot.sparse_dim or dim
        if not agreed.complete:  # all ranks must make a plan together; the next step tries again
            return self._reduce_by_name(reduced, agreed)
        residual = self.held_back()
        with self.settings.process_set.turns.take(agreed.turn):
            if self._plan is not None:
                self._plan.close()
            for dead in agreed.abandoned_plans:
                StepPlan.close_abandoned(self.settings.process_set, dead)
            self._plan, self._owed = None, residual
            if StepPlan.fits(self.settings.process_set):
                self._generation = generation
                self._plan = GradientPlan(self.settings, self._slots, name, generation, agreed, self._steps, residual)
        if self._plan is None:
            return self._without_room(reduced, agreed)
        self._owed = {}
        self._plan.run(reduced, KEPT)
        self.replicas.due = True

    def _reduce_by_name(self, reduced: set[Slot], agreed: Agreed) -> None:
        left = [slot for slot in self._slots if slot not in reduced]
        reduce_by_name(self.settings, left, itertools.compress(self._slots, agreed.sparse_dims))

    def _without_room(self, reduced: set[Slot], agreed: Agreed) -> None:
        """Reduces without a plan: other optimizers use all plans that the core can hold. The next step tries again."""
        self._reduce_by_name(reduced, agreed)
        if self._steps == 1:
            warnings.warn(
                "so many DistributedOptimizers exist that the gradients of this one are sent one by one, which is "
                "slower. Delete those that are no longer used",
                stacklevel=4,
            )

    def _watched(self, slot: Slot) -> Watched:
        one = slot.watched()
        wire = self.settings.format_of(slot.name, slot.parameter)
        return one if wire is None else one._replace(text=f"{one.text}, travels as {format_text(wire)}")

    def undo(self) -> None:
        """Restores the residuals, because the gradients of the step just reduced are not used."""
        if self._plan is not None:
            self._plan.undo()

    def slots(self) -> list[Slot]:
        return list(self._slots)

    def held_back(self) -> dict[Slot, torch.Tensor]:
        """Returns the residuals by parameter. Call it between steps."""
        return self._owed if self._plan is None else self._plan.held_back.by_slot()

    def norms(self) -> list[dict[str, Any]]:
        return [] if self._plan is None else self._plan.held_back.norms()

    def restore(self, residual: dict[Slot, torch.Tensor]) -> None:
        """Replaces the residuals. Call it between steps."""
        if self._plan is None:
            self._owed = residual
        else:
            self._plan.held_back.replace(residual)

    def discard(self) -> None:
        """Drops the gradients of this step; waits for those that have been sent."""
        if any(slot.passes for slot in self._slots):
            self._send_early = False
        try:
            if self._plan is not None and self._plan.begun and self._plan.usable():
                self._plan.run(set(), DROPPED)
        finally:
            self.restart()

    def restart(self) -> None:
        self._fired, self._changed, self._first = 0, False, None
        super().restart()
