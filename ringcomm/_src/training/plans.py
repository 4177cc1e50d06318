"""Plans of training steps for any framework: buckets of gradients, reduced once per step.

A binding adds hooks that report when a gradient is ready, and contiguous memory for each bucket.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ringcomm._src.base.errors import HorovodInternalError
from ringcomm._src.base.ops import Average, Sum
from ringcomm._src.core import _core
from ringcomm._src.named.process_sets import ProcessSet
from ringcomm._src.training.pieces import Piece

logger = logging.getLogger("ringcomm")
PlanId = tuple[int, int]  # number of the optimizer, number of the plan

_abandoned: dict[tuple[ProcessSet, PlanId], StepPlan] = {}
_kept: list[Any] = []  # memory that the core may still use


class Flags(NamedTuple):
    """Flags of a rank at the end of a step. In an Outcome: numbers of ranks with each flag."""

    kept: int = 0  # the rank uses the reduced gradients
    dropped: int = 0  # the rank drops the reduced gradients
    wants_new_plan: int = 0
    changed: int = 0  # the script changed gradients that were in flight
    split: int = 0  # backward added to gradients that were in flight
    compares: int = 0  # replicas must be compared in this step
    late: int = 0  # the script is correct only if gradients are sent at the end of a step


KEPT, DROPPED = Flags(kept=1), Flags(dropped=1)


class Outcome(NamedTuple):
    """Result of a step: numbers of ranks, by item of the plan."""

    present: list[int]  # ranks that had a gradient
    sparse: list[int]  # ranks that had a sparse gradient
    flags: Flags


def require_usable(flags: Flags, op: object) -> None:
    """Raises the same error on every rank if the step cannot be used."""
    if flags.dropped and flags.kept:
        raise HorovodInternalError(
            "Some ranks dropped the gradients of this step (zero_grad() after backward, without step()), and other "
            "ranks stepped. All ranks must take the same decision: call optimizer.synchronize() before the script "
            "reads gradients."
        )
    if flags.changed:
        raise HorovodInternalError(
            f"The script of {flags.changed} rank(s) changed gradients between backward() and step(), while they "
            "were being sent to the other ranks. To clip or unscale gradients, call optimizer.synchronize() first, "
            "then change them, then step within optimizer.skip_synchronize()."
        )
    if flags.split and op not in (Average, Sum):
        raise HorovodInternalError(
            "Backward added to gradients that were already being sent (reentrant checkpointing), which only "
            "op=Average and op=Sum support. Later steps send these gradients after backward, and do not fail."
        )


class Presence:
    """The gradients that this rank has, by item of the plan."""

    def __init__(self, count: int) -> None:
        self.here, self.sparse = bytearray(count), bytearray(count)

    def with_flags(self, flags: Flags) -> bytes:
        return b"".join((self.here, self.sparse, bytes(flags)))


def abandoned_plans(process_set: ProcessSet) -> list[PlanId]:
    """Returns the plans of optimizers that this rank has dropped.

    Ranks collect garbage at different times, but must close a plan at the same point of the
    program. They close it when they make the next plan, if every rank has dropped the optimizer.
    """
    for key in [key for key, plan in _abandoned.items() if not plan.usable()]:
        del _abandoned[key]
    return sorted(plan_id for owner, plan_id in _abandoned if owner is process_set)


class BucketWire(NamedTuple):
    """The wire formats of a bucket: codes of ops.wire_code."""

    wire: int = 0
    feedback: bool = False  # the residual is added to the next step's gradients
    first: int = 0  # wire format in the first `first_steps` steps of the plan
    first_steps: int = 0

    def compresses(self) -> bool:
        """Returns True if a format does more than round."""
        return not (_core.wire_rounds(self.wire) and _core.wire_rounds(self.first))


class LowRank(NamedTuple):
    """Matrices that are sent as two factors each. They cover the bucket, except its gaps."""

    rank: int = 0  # number of columns of the factors; 0: no matrices
    warm_start: bool = True
    matrices: Sequence[tuple[int, int, int]] = ()  # (first element in the bucket, rows, columns)


class BucketShape(NamedTuple):
    """A bucket: one or more ranges of memory ("stretches"). StepPlan.place sets their addresses."""

    dtype: int  # index into _core.DTYPES
    stretches: list[int]  # number of elements of each stretch; the bucket is their concatenation
    wire: BucketWire = BucketWire()
    gaps: Sequence[tuple[int, int]] = ()  # (first element, count) of elements outside of gradients; they are zero
    low_rank: LowRank = LowRank()
    on_device: bool = False  # True: in GPU memory on every rank; `ready_at` replaces `ready`


def _complete(operation: _core.Operation) -> None:
    operation.wait()
    operation.check()


class StepPlan:
    """A plan of the core, with its slot of shared memory, in one session."""

    _next_collection = 0.0  # earliest time of the next garbage collection: time.monotonic(), in seconds

    def __init__(
        self,
        process_set: ProcessSet,
        plan_id: PlanId,
        name: str,
        buckets: Sequence[BucketShape],
        items: int,
        op: int,
        scales: tuple[float, float],
        algorithm: str | None = None,
        pieces: Sequence[Piece] | None = None,
        overlaps: bool = True,
    ) -> None:
        """Makes a plan for `items` gradients; some may be in no bucket. Collective.

        `pieces`: the pieces of buckets (in host memory) by priority; None: buckets run in order.
        `overlaps`: buckets run as they become ready; False: in `send_rest`.
        """
        self._set, self._id, self._session, self._items = process_set, plan_id, process_set.session(), items
        node, self._slot = process_set.take_slot()
        self._buckets, self.by_priority, self.overlaps = buckets, pieces is not None, overlaps
        whole = [Piece(number, 0, sum(bucket.stretches)) for number, bucket in enumerate(buckets)]
        self._pieces = whole if pieces is None else pieces
        self._pieces_of: list[list[int]] = [[] for _ in buckets]
        for number, piece in enumerate(self._pieces):
            self._pieces_of[piece.bucket].append(number)
        self._plan: _core.Plan = self._session.engine.make_plan(
            *(process_set.set_id(), name, [self._shape_of(piece) for piece in self._pieces], int(op), *scales),
            *(2 * items + len(Flags._fields), node, self._slot),
            algorithm=process_set.algorithm("allreduce", algorithm) if algorithm else "",
            by_priority=self.by_priority,
            overlaps=overlaps,
        )
        self.begin = self._plan.begin
        self.ready = self._plan.ready if pieces is None else self._ready_pieces
        self.ready_at = self._plan.ready_at  # (bucket, order): for a bucket on a device
        # (bucket): True if its stretches may be at any address
        self.takes_stretches = self._plan.takes_stretches if pieces is None else self._takes_stretches
        # (bucket, stretch, address): call it before the bucket is ready
        self.place = self._plan.place if pieces is None else self._place_pieces
        self.feedback = self._plan.feedback  # the residuals of its encoders; call it between steps only
        self._operation: _core.Operation | None = None

    def _shape_of(self, piece: Piece) -> BucketShape:
        shape = self._buckets[piece.bucket]
        return shape if piece.elements == sum(shape.stretches) else shape._replace(stretches=[piece.elements])

    def _ready_pieces(self, bucket: int) -> None:
        for piece in self._pieces_of[bucket]:
            self._plan.ready(piece)

    def _takes_stretches(self, bucket: int) -> bool:
        return self._plan.takes_stretches(self._pieces_of[bucket][0])

    def _place_pieces(self, bucket: int, stretch: int, address: int) -> None:
        for piece in self._pieces_of[bucket]:
            self._plan.place(piece, stretch, address + self._pieces[piece].offset)

    @staticmethod
    def fits(process_set: ProcessSet) -> bool:
        """Returns True if the set may have one more plan: message tags limit their number.

        If not, collects garbage, so that the next agreement can close plans of dropped optimizers.
        """
        fits = process_set.session().engine.has_room_for_plan(process_set.set_id())
        if not fits and time.monotonic() > StepPlan._next_collection:
            gc.collect()
            StepPlan._next_collection = time.monotonic() + 10  # a collection takes 0.1 s and more
        return fits

    def usable(self) -> bool:
        """Returns False once ``shutdown()`` has been called, also after a further ``init()``."""
        return self._set._session is self._session

    def send_rest(self, present: Presence, flags: Flags) -> None:
        """Sends the rest of the step."""
        self._operation = self._plan.finish(present.with_flags(flags))

    def wait(self) -> Outcome:
        """Blocks until all of the step is done."""
        assert self._operation is not None
        return self._outcome(self._operation)

    def wait_for_counts(self) -> Outcome:
        """Blocks until the outcome of a step by priority is known. Buckets may still be in flight."""
        return self._outcome(self._plan.part(len(self._pieces)))

    def wait_for_bucket(self, bucket: int) -> None:
        """Blocks until the bucket is reduced. Call it after `wait_for_counts`."""
        for piece in self._pieces_of[bucket]:
            _complete(self._plan.part(piece))

    def _outcome(self, operation: _core.Operation) -> Outcome:
        _complete(operation)
        counts, items = operation.counts, self._items
        return Outcome(counts[:items], counts[items : 2 * items], Flags(*counts[2 * items :]))

    def close(self) -> None:
        """Closes the plan. All ranks close their plans at the same point of the program."""
        self._plan.close()
        self._set.give_slot(self._slot)

    @staticmethod
    def keep(memory: Any) -> None:
        """Keeps the memory of a failed step alive until the process ends."""
        _kept.append(memory)

    def abandon(self, keep: Any) -> None:
        """Registers the plan for closing; if a step is in progress, keeps its memory instead."""
        if keep is not None:
            self.keep(keep)
        elif self.usable():
            _abandoned[self._set, self._id] = self

    @staticmethod
    def close_abandoned(process_set: ProcessSet, plan_id: PlanId) -> None:
        """Closes a plan that all ranks have abandoned, unless another thread has closed it."""
        if (plan := _abandoned.pop((process_set, plan_id), None)) is not None:
            plan.close()
