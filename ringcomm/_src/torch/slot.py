"""A parameter as the gradient reducer sees it.

`hooked` makes a `Slot` for each trainable parameter. Plans store its gradient's state there.
"""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from ringcomm._src.torch.in_flight import GradientInFlight, GradientWatch, take_exposed, was_written
from ringcomm._src.torch.shared_gradients import BlockReservation
from ringcomm._src.torch.slices import COUNTS_USERS, ONE_USER, Slice, dense_strides, users_of
from ringcomm._src.torch.sparse import from_dense
from ringcomm._src.training.plan_agreement import ParameterFacts


class State(enum.IntEnum):
    """Progress of a gradient in this step. It only increases until the next step begins."""

    NO_GRADIENT = 0  # no gradient yet
    ACCUMULATING = 1
    HANDED_OVER = 2  # the gradient is complete and may be sent, or there is no gradient
    SPLIT = 3  # backward added a part afterwards; `.grad` is that part


# Bound once: looking up members of an enum for every gradient costs more than comparing them.
NO_GRADIENT, ACCUMULATING, HANDED_OVER, SPLIT = State


# Reads (dtype, shape, is_cpu) of gradients. From torch 2.10 on, parameters may have another dtype.
facts_of = operator.attrgetter("grad_dtype" if hasattr(torch.Tensor, "grad_dtype") else "dtype", "shape", "is_cpu")


def _references(parameter: torch.Tensor) -> int:
    gradient = parameter.grad
    return sys.getrefcount(gradient)


def _references_if_unshared() -> int:
    parameter = torch.empty(1, requires_grad=True)
    parameter.grad = torch.empty(1)
    return _references(parameter)


_UNSHARED_REFERENCES = _references_if_unshared()


class Slot:
    """One parameter: the state of its gradient in this step, and its slice of a bucket."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.hooks: list[Any] = []
        self.facts = facts_of(parameter)
        self.like = parameter  # has the dtype and shape of the gradients
        if self.facts[0] not in (None, parameter.dtype):
            self.like = torch.empty((), dtype=self.facts[0], device=parameter.device).expand(parameter.shape)
        self.blocks: BlockReservation | None = None
        self.state = NO_GRADIENT
        self.stored = False  # the gradient is in its bucket, or submitted by name
        self.passes = 0  # backward passes that gave a gradient since the last reduction
        self.fired = -1  # position in the order of this step's gradients; -1: no gradient yet
        self.in_parts = False  # its gradient was computed in parts, so only synchronize() sends it
        self.sparse_dim = 0  # sparse dimensions of its sparse gradients; 0: no sparse gradient so far
        self.watch = GradientWatch()
        self._marked: torch.Tensor | None = None  # gradient with intercepted memory accesses
        self._exposed: list[tuple[torch.Tensor, torch.Tensor]] = []  # memory that the script got from `_marked`
        self._held = False  # True: the script has the gradient, so `.grad` keeps its object and memory
        self.exposes_view = True  # False: the script keeps gradients, so `.grad` is a copy of the slice's view
        self.in_plan = False  # the optimizer's plan has this slot
        self.slice: Slice | None = None  # slice of a bucket, set by the plan; None: reduced by name
        self.collect: Callable[[], torch.Tensor] | None = None

    def fits(self) -> bool:
        """Returns True if dtype, shape and memory are as before, unlike after ``net.double()``."""
        return facts_of(self.parameter) == self.facts

    def will_accumulate(self) -> bool:
        """Returns True if this backward adds to ``.grad``. Call it in a hook."""
        with torch.enable_grad():
            node: Any = self.parameter.view_as(self.parameter).grad_fn
        try:
            return torch._C._will_engine_execute_node(node.next_functions[0][0])
        except RuntimeError:  # torch raises it for a leaf in autograd.grad
            return False

    def end(self) -> None:
        """Stops watching the parameter."""
        for hook in self.hooks:
            hook.remove()
        if self.blocks is not None:
            self.blocks.end()
        self.hooks, self.blocks = [], None

    def gradient(self) -> torch.Tensor | None:
        if (gradient := self.parameter.grad) is not None and gradient.is_sparse:
            self.sparse_dim = gradient.sparse_dim()
        return gradient

    def begin(self, fired: int) -> None:
        """Records the first gradient of this step, which is number `fired` in order."""
        self.state, self.fired = ACCUMULATING, fired

    def mark(self, gradient: torch.Tensor, kind: type[GradientInFlight]) -> None:
        """Intercepts the script's accesses to the gradient until `find_holders` or `restart`."""
        if type(gradient) is torch.Tensor and gradient.layout is torch.strided:
            self._unmark()  # the script may have replaced the marked gradient
            gradient.__class__ = kind
            self._marked = gradient

    def _unmark(self) -> None:
        marked = self._marked
        if marked is not None:
            marked.__class__, self._marked, self._exposed = torch.Tensor, None, take_exposed(marked)

    def find_holders(self) -> None:
        """Detects if the script has the gradient or its memory. Call it once, at the end of a step."""
        self._unmark()
        self._held = self._is_held()

    def written_to(self) -> bool:
        """Returns True if the script has changed the gradient since backward."""
        gradient = self.parameter.grad
        return gradient is None or not self.watch.has_writes(gradient, 0) or was_written(self._exposed)

    def _is_held(self) -> bool:
        gradient = self.parameter.grad
        if gradient is None or gradient.layout is not torch.strided:
            return False
        if gradient._is_view():  # usually the script's buffer; if not, `release_view` follows
            return torch._debug_has_internal_overlap(gradient) != 1  # 1: `expand` made the view
        if self.stored and self.exposes_view:  # `.grad` is the slice's view, so it stays the same object
            return False
        if not self._exposed and _references(self.parameter) <= _UNSHARED_REFERENCES + 1:  # +1: `gradient`
            return False
        # No result is written to memory that another parameter's gradient uses too (sum of views).
        address = gradient.data_ptr()
        expected = ONE_USER + sum(memory.data_ptr() == address for memory, _ in self._exposed)
        return COUNTS_USERS and users_of(gradient.untyped_storage()) <= expected

    def hand_over(self) -> None:
        """Marks the gradient as complete for this step, or as missing."""
        assert self.state < HANDED_OVER
        self.state = HANDED_OVER

    def take(self, gradient: torch.Tensor, fired: int) -> None:
        """Does the work of `begin`, `count_pass`, `hand_over` and `mark` for a first gradient."""
        self.state, self.fired, self.passes = HANDED_OVER, fired, 1
        self.watch.record(gradient)
        if gradient.layout is torch.strided:
            gradient.__class__, self._marked = GradientInFlight, gradient
        elif gradient.is_sparse:
            self.sparse_dim = gradient.sparse_dim()

    def split(self) -> None:
        """Clears ``.grad``, so that it receives only later parts: the first part is in flight."""
        assert self.state == HANDED_OVER
        self.state, self.in_parts = SPLIT, True
        self.parameter.grad = None

    def describe(self) -> ParameterFacts:
        """Returns the properties on which the ranks agree for a plan."""
        p = self.like
        text = f"{self.name}: {p.dtype} {tuple(p.shape)} strides {dense_strides(p)}"
        text += "" if p.is_cpu else f" on {p.device.type}"
        return ParameterFacts(text, self.fired, self.sparse_dim)

    def count_pass(self, gradient: torch.Tensor) -> bool:
        """Counts a backward pass. Returns False if the script cleared earlier gradients."""
        added = self.passes == 0 or self.watch.has_writes(gradient, 1)
        self.passes = self.passes + 1 if added else 1
        self.watch.record(gradient)
        return added

    def store(self) -> bool:
        """Copies the gradient (or zeros) into the bucket. Returns True if there is a gradient."""
        assert self.slice is not None
        gradient, self.stored = self.gradient(), True
        if gradient is None:
            self.slice.clear()
            return False
        if self.sparse_dim and gradient.is_sparse:  # dense in the bucket; deliver() makes it sparse again
            self.slice.store(gradient.to_dense())
            return True
        view = self.slice.store(gradient)
        if gradient is not view and not gradient._is_view():
            if self.exposes_view and not self._held:
                self.parameter.grad = view
            if self.blocks is not None:
                self.blocks.add_block()
        return True

    def deliver(self, sparse: bool) -> None:
        """Makes the reduced gradient ``.grad``. ``sparse``: some rank's gradient was sparse."""
        assert self.slice is not None
        view = self.slice.view
        if sparse:
            self.set_gradient(from_dense(view, self.sparse_dim or 1))
        else:
            self.set_gradient(view if self.exposes_view or self._held else view.clone())
        if self._exposed:
            self._write_exposed(view)

    def set_gradient(self, result: torch.Tensor) -> None:
        """Makes the result ``.grad``. If the script has the gradient, writes the result into it."""
        gradient = self.parameter.grad
        if self._held and gradient is not None and self.state < SPLIT and not result.is_sparse:
            with torch.no_grad():
                gradient.copy_(result)
        elif gradient is not result:
            self.parameter.grad = result

    def holds_view(self) -> bool:
        """Returns True if the result is to be written into a view, as of a buffer of the script."""
        gradient = self.parameter.grad
        return self._held and gradient is not None and gradient._is_view()

    def release_view(self) -> None:
        """Makes `set_gradient` replace a view, because another gradient uses its memory too."""
        if self.holds_view():
            self._held = False

    @torch.no_grad()
    def _write_exposed(self, result: torch.Tensor) -> None:
        """Writes the result to the memory that the script got instead of the gradient's memory."""
        for memory, _ in self._exposed:
            if memory.shape == result.shape:
                memory.copy_(result)

    def add(self, rest: torch.Tensor) -> None:
        """Adds a later part to the reduced gradient."""
        first = self.parameter.grad
        if first is not None and first.is_sparse and not rest.is_sparse:
            rest = from_dense(rest, first.sparse_dim())
        self.parameter.grad = rest if first is None else first + rest

    def leave_bucket(self) -> None:
        """Moves the gradient out of its bucket, which is about to be overwritten."""
        gradient = self.parameter.grad
        if self.slice is not None and gradient is not None:
            kept = self.slice.move_out(gradient)
            if kept is not gradient:
                self.parameter.grad = kept

    def restart(self) -> None:
        """Begins a new step."""
        self._unmark()
        self._exposed, self._held = [], False
        self.state, self.stored, self.passes, self.fired, self.collect = NO_GRADIENT, False, 0, -1, None
        self.watch.forget()
