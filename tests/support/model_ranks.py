"""One rank of a random program: makes calls and compares their results with model_calls.py's.

All ranks run the same steps. Each choice depends on the step's numbers, the rank and the group's
size alone. Ranks as threads, ranks under mpiexec, and hypothesis, which removes steps to shrink a
program, therefore need no coordination.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import model_messages
import model_refusals
import numpy as np
from model_calls import Case, Step, call_of, cases, form_of, method
from model_values import Array, agree, laid_out

import ringcomm

MOST_GROUPS = 4


class Pending(NamedTuple):
    """A started call that the rank has not waited for."""

    number: int  # the number of its step
    group: int
    finish: Callable[[], None]  # waits for it and checks its result


class Started(NamedTuple):
    """A repeatable collective. `start` calls it; unless it blocks, returns its completion."""

    number: int
    group: int
    start: Callable[[], Callable[[], None] | None] | None  # None: this rank is not in the group


class Rank:
    """Runs a program on a communicator.

    Parameters
    ----------
    comm : ringcomm.Communicator
        The communicator of all ranks; it stays open.
    steps : Sequence[Step]
        Identical on every rank.
    """

    def __init__(self, comm: ringcomm.Communicator, steps: Sequence[Step]) -> None:
        self.me, self.steps = comm.rank, steps
        # keyed by the step that split it off
        self.groups: list[tuple[int, ringcomm.Communicator | None]] = [(-1, comm)]
        self.pending: list[Pending] = []
        self.started: list[Started] = []

    def run(self) -> None:
        for number, step in enumerate(self.steps):
            try:
                self.make(number, step)
            except BaseException as error:
                error.add_note(f"in step {number} ({call_of(step)}) on rank {self.me}: {step}")
                raise
        self.finish(lambda one: True, 0)
        while len(self.groups) > 1:
            self.close(-1)
        complete(self.groups[0][1])

    def make(self, number: int, step: Step) -> None:
        group, comm = self.groups[step.group % len(self.groups)]
        if step.kind == "wait":
            self.finish(lambda one: step.variant % 3 == 0 or one.number % 2 == step.variant % 2, step.seed)
        elif step.kind == "again":
            self.again(step)
        elif step.kind == "close":
            if len(self.groups) > 1:
                self.close(1 + step.variant % (len(self.groups) - 1), step.seed % 3 == 2)
        elif step.kind == "split":
            if len(self.groups) < MOST_GROUPS:
                self.groups.append((number, None if comm is None else split(comm, step)))
        elif step.kind == "collective":
            self.collective(number, group, step, comm)
        elif comm is None:
            pass
        elif step.kind in ("messages", "mismatch"):
            messages = step.kind == "messages"
            unfinished = (
                model_messages.exchange(comm, number, step) if messages else model_refusals.disagree(comm, step)
            )
            self.pending += [Pending(number, group, finish) for finish in unfinished]
        else:
            model_refusals.refuse(comm, step)

    def collective(self, number: int, group: int, step: Step, comm: ringcomm.Communicator | None) -> None:
        begins = prepare if form_of(step, call_of(step)) == "init" else submit
        start = None if comm is None else begins(comm, step)
        self.started.append(Started(number, group, start))
        self.begin(self.started[-1])
        if step.variant % 4 == 0:
            self.finish(lambda one: one.number == number, 0)
        if step.form == "" and step.variant % 3 == 0:  # the core's call cache from this call serves the next one
            self.begin(self.started[-1])
            self.begin(self.started[-1])

    def again(self, step: Step) -> None:
        """Makes an earlier call once more."""
        if self.started:
            one = self.started[step.variant % len(self.started)]
            self.finish(lambda other: other.number == one.number, 0)
            self.begin(one)

    def begin(self, one: Started) -> None:
        finish = None if one.start is None else one.start()
        if finish is not None:
            self.pending.append(Pending(one.number, one.group, finish))

    def finish(self, which: Callable[[Pending], bool], seed: int) -> None:
        """Waits for some calls, on each rank in a different order."""
        chosen = [one for one in self.pending if which(one)]
        self.pending = [one for one in self.pending if not which(one)]
        for i in np.random.default_rng((seed, self.me)).permutation(len(chosen)):
            try:
                chosen[i].finish()
            except BaseException as error:
                error.add_note(f"waiting for step {chosen[i].number}: {self.steps[chosen[i].number]}")
                raise

    def close(self, place: int, leaves: bool = False) -> None:
        group, comm = self.groups.pop(place)
        self.finish(lambda one: one.group == group, group)
        self.started = [one for one in self.started if one.group != group]
        if comm is not None:
            complete(comm)
            if leaves and comm.size > 1:
                model_refusals.leave(comm, group % comm.size)
            else:
                comm.close()
            model_refusals.require_closed(comm)


def complete(comm: ringcomm.Communicator | None) -> None:
    """Completes the calls that no rank waits for."""
    if comm is not None:
        comm.ibarrier().wait()


def split(comm: ringcomm.Communicator, step: Step) -> ringcomm.Communicator | None:
    rng = np.random.default_rng(step.seed)
    colors = [None if color == 2 and step.variant % 2 else int(color) for color in rng.integers(0, 3, comm.size)]
    keys = rng.permutation(comm.size).tolist()
    color = colors[comm.rank]
    part = comm.split(color, keys[comm.rank])
    if color is None:
        assert part is None
        return None
    assert part is not None
    members = sorted((rank for rank in range(comm.size) if colors[rank] == color), key=keys.__getitem__)
    assert (part.rank, part.size) == (members.index(comm.rank), len(members))
    return part


# ---- collectives -----------------------------------------------------------------------------------------------------
def arguments(
    comm: ringcomm.Communicator, case: Case, step: Step, layout: str
) -> tuple[Array | None, Array | None, dict[str, Any]]:
    """Returns the arrays of one call, x and out, and its named arguments."""
    x = None if case.x is None else laid_out(case.x, layout, comm)
    out = None
    if case.expected is None or step.output == "new":
        pass
    elif step.output == "in place":
        out = x if case.in_place and isinstance(x, np.ndarray) and x.flags.writeable else None
    else:
        layout = "C" if step.output == "given" else step.output
        out = laid_out(np.empty(case.expected.shape, case.expected.dtype), layout, comm)
    named = case.named if out is None else {**case.named, "out": out}
    return x, out, named if step.seed % 6 else {**named, "name": "a name"}


def submit(comm: ringcomm.Communicator, step: Step) -> Callable[[], Callable[[], None] | None]:
    """Returns a blocking or non-blocking call that uses new arrays and values each time."""
    turn = 0

    def start() -> Callable[[], None] | None:
        nonlocal turn
        case = cases(step, comm.size, turn)[comm.rank]
        turn += 1
        x, out, named = arguments(comm, case, step, step.layout)
        given = () if x is None else (x,)
        made = method(comm, call_of(step), step)(*given, **named)
        if not step.form:
            check(made, case, x, out)
            return None
        if step.seed % 10 == 9:
            return None  # no wait follows, and the arrays are released
        return lambda: check(waited(made, step), case, x, out)

    return start


def prepare(comm: ringcomm.Communicator, step: Step) -> Callable[[], Callable[[], None]]:
    """Returns a persistent call. Each start gives it new values."""
    call = method(comm, call_of(step), step)
    case, turn = cases(step, comm.size)[comm.rank], 0
    if case.x is not None and copied(strided := laid_out(case.x, step.layout, comm)):
        model_refusals.require(lambda: call(strided, **case.named), ValueError)
    layout = step.layout if step.layout in ("unaligned", "shared") else "C"
    x, out, named = arguments(comm, case, step, layout)
    persistent = call(*(() if x is None else (x,)), **named)

    def start() -> Callable[[], None]:
        nonlocal turn
        now = cases(step, comm.size, turn)[comm.rank]
        turn += 1
        if x is not None:
            x[...] = now.x
        persistent.start()
        return lambda: check(waited(persistent, step), now, x, out)

    return start


def copied(x: Any) -> bool:
    return isinstance(x, list) or (isinstance(x, np.ndarray) and not x.flags.c_contiguous)


def waited(handle: Any, step: Step) -> Any:
    while step.variant % 5 == 1 and not handle.test():
        time.sleep(0)
    while step.variant % 5 == 2:
        with contextlib.suppress(TimeoutError):
            return handle.wait(1e-4)
    return handle.wait()


def check(result: Any, case: Case, x: Array | None, out: Array | None) -> None:
    if isinstance(result, tuple):
        result, received = result
        assert received.sum() == len(result), received
    if case.expected is None:
        assert result is None, result
    else:
        assert agree(result, case.expected), f"got\n{result!r}\nwant\n{case.expected!r}"
        assert out is None or result is out
    assert x is None or x is out or agree(x, case.x), "the call has changed x"


def run(comm: ringcomm.Communicator, steps: Sequence[Step]) -> None:
    Rank(comm, steps).run()
