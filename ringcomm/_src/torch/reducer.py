"""Reduces the gradients of one optimizer while backward makes them.

A hook on each parameter copies the gradient into its bucket; a full bucket travels at once. ``synchronize`` sends
what is left, waits, and makes every ``.grad`` the reduced gradient, which lies in the bucket: nothing is copied back.

The first two steps only watch: the order of the gradients in the first one, as rank 0 saw it, becomes the order of
the buckets for good. If a script lets gradients flow into parameters and then clears them instead of stepping (into a
GAN's discriminator, while the generator trains), if it changes them before it steps (clips them), or if a gradient
comes in parts (reentrant checkpointing), these parameters are sent by ``synchronize`` only: so nothing is sent that is
not wanted, and nothing before it is complete. A script that begins with that later is put right in that step (a second
hook, which runs before a gradient is added to, keeps autograd off gradients that are on their way), but for changes,
which are an error.
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
    """The gradients of one optimizer.

    All ranks of the process set make one for the same parameters, and synchronize equally often. Parameters that are
    added join the plan at the end of this step.
    """

    def __init__(self, settings: Settings, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        self.settings = settings
        self.replicas = ReplicaCheck(settings)
        self._plan: GradientPlan | None = None
        self._owed: dict[Slot, torch.Tensor] = {}  # what is held back, while there is no plan
        self._generation = 0
        self._steps = 0
        self._send_early = True  # False: gradients have flowed here that were not for us
        self._fired = 0
        self._changed = False  # gradients that were on their way
        self._first: Slot | None = None  # that was handed over during backward in this step
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
        """Whether the script has cleared gradients that are on their way (``model.zero_grad()``): they are not wanted.
        A script clears all, so the first one is looked at; a clearing of some is noticed where these get more."""
        first = self._first
        return first is not None and first.state == HANDED_OVER and first.parameter.grad is None

    def on_gradient(self, slot: Slot, gradient: torch.Tensor) -> None:
        if slot.state >= HANDED_OVER:  # the rest of it
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
        if slot.passes > self.settings.passes and self.alone:  # or they may be another optimizer's
            raise AssertionError(TOO_OFTEN.format(name=slot.name))
        if slot.passes == self.settings.passes:
            self._send(slot)

    def _send(self, slot: Slot) -> None:
        plan = self._plan
        early = self._send_early and self._steps >= WATCHED_STEPS and self.alone
        if early and plan is not None and plan.usable() and plan.holds(slot) and slot.fits():
            plan.begin()
            if plan.aliased:  # the script may write to gradients in ways that are not seen
                return
            plan.hand_over(slot)
            self._first = self._first or slot
            gradient = slot.gradient()
            if gradient is not None:
                slot.watch.look(gradient)
                slot.mark(gradient, GradientInFlight)

    def has_gradients(self) -> bool:
        """Whether any has come since the last reduction."""
        return self._fired > 0

    def told_of_changes(self) -> None:
        """The script has changed gradients since backward."""
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
        """Waits for what has been sent and forgets it; gradients that have come since stay.

        An error on all ranks if the script has cleared a part of it: the rest has been overwritten by the reduction.
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
        """Sends what is left, waits for all of it, and makes every ``.grad`` the reduced one.

        A parameter that had a gradient on some rank has one on all ranks now; one that had none anywhere keeps
        ``.grad``.
        """
        self.refuse_capture()
        self.claim()
        if self._cleared():
            self._take_back()
        self._look_for_changes()
        other = {slot for slot in self._slots if slot.state < HANDED_OVER and not slot.fits()}  # others were asked then
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
                self._send_early = flags.late == 0  # on all ranks: or some begin a step that others do not know of
                reduced = set(self._plan.slots) - other
            else:
                self._owed = self.held_back()
                self._plan, wants_new_plan = None, True
            if wants_new_plan:  # on all ranks, for the flag has been exchanged
                self._renew(reduced)
            self.replicas.step(self._slots, flags.compares > 0)
            self._steps += 1
        except HorovodInternalError:
            self._send_early = False  # whatever a rank's script did, it may do again
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
        if not agreed.complete:  # a plan must be made by all ranks; the next step asks again
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
        """Reduces without a plan where other optimizers have all that there can be; the next step asks again."""
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
        """The gradients of the step just reduced are not used."""
        if self._plan is not None:
            self._plan.undo()

    def slots(self) -> list[Slot]:
        return list(self._slots)

    def held_back(self) -> dict[Slot, torch.Tensor]:
        """What encoders have left out, by parameter. Between steps."""
        return self._owed if self._plan is None else self._plan.held_back.by_slot()

    def norms(self) -> list[dict[str, Any]]:
        return [] if self._plan is None else self._plan.held_back.norms()

    def restore(self, residual: dict[Slot, torch.Tensor]) -> None:
        """In place of what is held back. Between steps."""
        if self._plan is None:
            self._owed = residual
        else:
            self._plan.held_back.replace(residual)

    def discard(self) -> None:
        """The gradients of this step are not wanted; what has been sent of them is waited for."""
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
