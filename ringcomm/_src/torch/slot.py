"""A parameter as the gradient reducer sees it, and facts about the backward pass that called a hook.

`hooked` makes a `Slot` for each trainable parameter, where plans keep the state of its gradient.
"""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from ringcomm._src.torch.in_flight import GradientInFlight, take_lent, was_written
from ringcomm._src.torch.shared_gradients import Room
from ringcomm._src.torch.slices import COUNTS_USERS, ONE_USER, Slice, dense_strides, users_of
from ringcomm._src.training.plan_agreement import Watched

_BACKWARD_CODE = {torch.autograd.backward.__code__, torch.autograd.grad.__code__}


def _backwards_on(frame: FrameType | None) -> int:
    """Returns the number of calls of backward on a stack, from this frame on; at most two."""
    seen = 0
    while frame is not None and seen < 2:
        seen += frame.f_code in _BACKWARD_CODE
        frame = frame.f_back
    return seen


def inside_nested_backward(everywhere: bool = False) -> bool:
    """Returns True if a backward pass runs inside another one, as in reentrant checkpointing.

    A gradient may then come in parts, each of which calls the hook; none is marked as the last one.
    Autograd does not report nesting, but on the CPU both passes are on the caller's stack.
    Hooks of device parameters run on a thread of the device, which also begins the inner pass. The
    outer pass is on its caller's stack, so `everywhere` searches the stacks of all threads. (Two
    threads with independent passes look the same; then gradients are sent late, but correctly.)
    """
    if not everywhere:
        return _backwards_on(sys._getframe(1)) > 1
    return sum(_backwards_on(frame) for frame in sys._current_frames().values()) > 1


class NestedBackward:
    """Caches `inside_nested_backward` per backward pass, because walking the stack costs microseconds."""

    def __init__(self) -> None:
        self._pass_id = -1
        self._nested = False

    def __call__(self, everywhere: bool) -> bool:
        """Returns the cached result. `everywhere`: hooks may run on threads other than backward's caller."""
        pass_id = torch._C._current_graph_task_id() if hasattr(torch._C, "_current_graph_task_id") else -1
        if pass_id == -1:
            return inside_nested_backward(everywhere)
        if pass_id != self._pass_id:
            self._pass_id, self._nested = pass_id, inside_nested_backward(everywhere)
        return self._nested


class GradientWatch:
    """Detects whether a gradient was only added to since the last look, or replaced or rewritten (``zero_grad``).
    Autograd adds in place, which raises the tensor's version by one; other changes differ in
    version, identity or address. ``GradScaler.unscale_`` and writes to ``.data`` leave no trace.
    """

    __slots__ = ("_address", "_identity", "_version")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._identity, self._address, self._version = 0, 0, -1

    def look(self, gradient: torch.Tensor) -> None:
        self._identity, self._version = id(gradient), gradient._version
        self._address = 0 if gradient.layout != torch.strided else gradient.data_ptr()

    def only_added_to(self, gradient: torch.Tensor) -> bool:
        return self._changes(gradient) == 1

    def untouched(self, gradient: torch.Tensor | None) -> bool:
        return gradient is not None and self._changes(gradient) == 0

    def _changes(self, gradient: torch.Tensor) -> int:
        """Returns the number of writes since the last look; -1 if it is another tensor."""
        address = 0 if gradient.layout != torch.strided else gradient.data_ptr()
        same = (id(gradient), address) == (self._identity, self._address)
        return gradient._version - self._version if same else -1


class State(enum.IntEnum):
    """Progress of a gradient in this step. It only increases until the next step begins."""

    QUIET = 0  # no gradient yet
    ACCUMULATING = 1
    HANDED_OVER = 2  # complete, so it may be sent, or there is none
    SPLIT = 3  # backward added a part afterwards; `.grad` is that part


# Bound once: looking up members of an enum for every gradient costs more than comparing them.
QUIET, ACCUMULATING, HANDED_OVER, SPLIT = State


# Reads facts of a parameter's gradients; from torch 2.10 on, the parameter's dtype may differ.
facts_of = operator.attrgetter("grad_dtype" if hasattr(torch.Tensor, "grad_dtype") else "dtype", "shape", "is_cpu")


def _references(parameter: torch.Tensor) -> int:
    gradient = parameter.grad
    return sys.getrefcount(gradient)


def _references_of_one_alone() -> int:
    parameter = torch.empty(1, requires_grad=True)
    parameter.grad = torch.empty(1)
    return _references(parameter)


_ALONE = _references_of_one_alone()


class Slot:
    """One parameter: the state of its gradient in this step, and its slice of a bucket."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.hooks: list[Any] = []
        self._facts = facts_of(parameter)
        self.like = parameter  # has the dtype and shape of the gradients
        if self._facts[0] not in (None, parameter.dtype):
            self.like = torch.empty((), dtype=self._facts[0], device=parameter.device).expand(parameter.shape)
        self.room: Room | None = None
        self.state = QUIET
        self.passes = 0  # backward passes that gave a gradient since the last reduction
        self.fired = -1  # index in the order of this step's first gradients; -1: none yet
        self.in_parts = False  # its gradient has come in parts, so only synchronize() sends it
        self.sparse_dim = 0  # sparse dimensions of its sparse gradients; 0: no sparse gradient so far
        self.watch = GradientWatch()
        self._marked: torch.Tensor | None = None  # gradient with intercepted memory accesses
        self._lent: list[tuple[torch.Tensor, torch.Tensor]] = []  # memory that the script got from it in this step
        self._held = False  # script has the gradient: `.grad` keeps object and memory
        self.lends = True  # False: a script keeps gradients, so it gets separate memory
        self.slice: Slice | None = None  # slice of a bucket, set by the plan; None: reduced by name
        self.collect: Callable[[], torch.Tensor] | None = None

    def fits(self) -> bool:
        """Returns True if dtype, shape and memory are unchanged. (``net.double()`` changes the parameter's data.)"""
        return facts_of(self.parameter) == self._facts

    def will_accumulate(self) -> bool:
        """Returns True if this backward pass adds to ``.grad``; ``torch.autograd.grad`` does not. Call it in a hook."""
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
        if self.room is not None:
            self.room.end()
        self.hooks, self.room = [], None

    def gradient(self) -> torch.Tensor | None:
        gradient = self.parameter.grad
        if gradient is not None and gradient.is_sparse:
            self.sparse_dim = gradient.sparse_dim()
        return gradient

    def begin(self, fired: int) -> None:
        """Records the first gradient of this step, which is number `fired` in order."""
        self.state, self.fired = ACCUMULATING, fired

    def mark(self, gradient: torch.Tensor, kind: type[GradientInFlight]) -> None:
        """Intercepts the script's accesses to the gradient's memory until `written_to` or `restart`."""
        if type(gradient) is torch.Tensor and gradient.layout is torch.strided:
            self._unmark()  # the script may have replaced the marked gradient
            gradient.__class__ = kind
            self._marked = gradient

    def _unmark(self) -> None:
        marked = self._marked
        if marked is not None:
            marked.__class__, self._marked = torch.Tensor, None
            self._lent = take_lent(marked)

    def written_to(self) -> bool:
        """Returns True if the script has changed the gradient since the last look. Sets `_held`."""
        self._unmark()
        self._held = self._is_held()
        return was_written(self._lent) or not self.watch.untouched(self.gradient())

    def _is_held(self) -> bool:
        if self.state == HANDED_OVER and self.lends:  # `.grad` is the slice's view, so it stays the same object
            return False
        gradient = self.parameter.grad
        if gradient is None or gradient.layout is not torch.strided:
            return False
        if not self._lent and _references(self.parameter) <= _ALONE + 1:  # +1: local variable `gradient`
            return False
        # Memory that is another parameter's gradient too (as in a sum of views) gets no results.
        address = gradient.data_ptr()
        expected = ONE_USER + sum(memory.data_ptr() == address for memory, _ in self._lent)
        return COUNTS_USERS and users_of(gradient.untyped_storage()) <= expected

    def hand_over(self) -> None:
        """Marks the gradient as complete for this step, or as missing."""
        assert self.state < HANDED_OVER
        self.state = HANDED_OVER

    def split(self) -> None:
        """Prepares for another part: the first part is in flight, so ``.grad`` will hold the later one alone."""
        assert self.state == HANDED_OVER
        self.state, self.in_parts = SPLIT, True
        self.parameter.grad = None

    def watched(self) -> Watched:
        """Returns the properties on which the ranks agree for a plan."""
        p = self.like
        text = f"{self.name}: {p.dtype} {tuple(p.shape)} strides {dense_strides(p)}"
        text += "" if p.is_cpu else f" on {p.device.type}"
        return Watched(text, self.fired, self.sparse_dim)

    def count_pass(self, gradient: torch.Tensor) -> bool:
        """Counts a backward pass. Returns False if earlier gradients were cleared, which then do not count."""
        added = self.passes == 0 or self.watch.only_added_to(gradient)
        self.passes = self.passes + 1 if added else 1
        self.watch.look(gradient)
        return added

    def store(self) -> bool:
        """Copies the gradient, or zeros if there is none, into the bucket. Returns True if there is one."""
        assert self.slice is not None
        gradient = self.gradient()
        if gradient is None:
            self.slice.clear()
            return False
        if gradient.is_sparse:  # dense in the bucket; deliver() makes it sparse again
            self.slice.store(gradient.to_dense())
            return True
        view = self.slice.store(gradient)
        if gradient is not view:
            if self.lends and not self._held:
                self.parameter.grad = view
            if self.room is not None:
                self.room.missed()
        return True

    def deliver(self, sparse: bool) -> None:
        """Makes the reduced gradient ``.grad``. ``sparse``: some rank's gradient was sparse."""
        assert self.slice is not None
        view, gradient = self.slice.view, self.parameter.grad
        if sparse:
            self.parameter.grad = view.to_sparse(self.sparse_dim or 1)
        elif self._held and gradient is not None and self.state < SPLIT:
            with torch.no_grad():
                gradient.copy_(view)
        elif not self.lends:
            self.parameter.grad = view.clone()
        elif gradient is not view:
            self.parameter.grad = view
        if self._lent:
            self._write_lent(view)

    @torch.no_grad()
    def _write_lent(self, result: torch.Tensor) -> None:
        """Writes the result to the memory that the script got instead of the gradient's memory."""
        for memory, _ in self._lent:
            if memory.shape == result.shape:
                memory.copy_(result)

    def add(self, rest: torch.Tensor) -> None:
        """Adds a later part to the reduced gradient."""
        first = self.parameter.grad
        if first is not None and first.is_sparse and not rest.is_sparse:
            rest = rest.to_sparse(first.sparse_dim())
        self.parameter.grad = rest if first is None else first + rest

    def leave_bucket(self) -> None:
        """Moves the gradient out of its bucket, which is about to be overwritten."""
        gradient = self.parameter.grad
        if self.slice is not None and gradient is not None:
            kept = self.slice.leave(gradient)
            if kept is not gradient:
                self.parameter.grad = kept

    def restart(self) -> None:
        """Begins a new step."""
        self._unmark()
        self._lent, self._held = [], False
        self.state, self.passes, self.fired, self.collect = QUIET, 0, -1, None
        self.watch.forget()
