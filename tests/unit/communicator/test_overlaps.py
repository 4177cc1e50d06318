"""Calls whose array and result overlap in memory: the result is right, or the call is refused.

In-place calls succeed. One generator draws calls, sizes and views of one buffer. NumPy computes the
expected result, and detects views that share a byte.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import mpi_case
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads
from ringcomm._src.config.config import Config

Array = Any


class Kind(NamedTuple):
    """A kind of call.

    Holds the rows of its array and of its result in units of `n`, and the expected result from
    every rank's array.
    """

    given: Callable[[int], int]
    result: Callable[[int], int]
    right: Callable[[list[Array], int], Array]  # None: this rank has no result
    # in place: offset of the array in the result (negative: offset of the result in the array)
    own: Callable[[int], int]
    more: tuple[Any, ...] = ()


def one(size: int) -> int:
    return 1


def all_of(size: int) -> int:
    return size


def part(x: Array, rank: int, size: int) -> Array:
    return x.reshape(size, -1)[rank]


def turned(xs: list[Array], rank: int) -> Array:
    return np.concatenate([part(x, rank, len(xs)) for x in xs])


ROOT = 0
KINDS = {
    "allreduce": Kind(one, one, lambda xs, r: sum(xs), lambda r: 0),
    "reduce": Kind(one, one, lambda xs, r: sum(xs) if r == ROOT else None, lambda r: 0),
    "broadcast": Kind(one, one, lambda xs, r: xs[ROOT], lambda r: 0),
    "scan": Kind(one, one, lambda xs, r: sum(xs[: r + 1]), lambda r: 0),
    "exscan": Kind(one, one, lambda xs, r: sum(xs[:r]) if r else None, lambda r: 0),
    "allgather": Kind(one, all_of, lambda xs, r: np.concatenate(xs), lambda r: r),
    "allgatherv": Kind(one, all_of, lambda xs, r: np.concatenate(xs), lambda r: r),
    "gather": Kind(one, all_of, lambda xs, r: np.concatenate(xs) if r == ROOT else None, lambda r: r),
    "gatherv": Kind(one, all_of, lambda xs, r: np.concatenate(xs) if r == ROOT else None, lambda r: r),
    "scatter": Kind(all_of, one, lambda xs, r: part(xs[ROOT], r, len(xs)), lambda r: -r),
    "scatterv": Kind(all_of, one, lambda xs, r: part(xs[ROOT], r, len(xs)), lambda r: -r),
    "reducescatter": Kind(all_of, one, lambda xs, r: part(sum(xs), r, len(xs)), lambda r: -r),
    "reduce_scatter": Kind(all_of, one, lambda xs, r: part(sum(xs), r, len(xs)), lambda r: -r),
    "alltoall": Kind(all_of, all_of, turned, lambda r: 0),
    "alltoallv": Kind(all_of, all_of, turned, lambda r: 0),
}
FORMS = ("{}", "i{}", "{}_init")
# number of count lists that a call takes
COUNTS = {"allgatherv": 1, "gatherv": 1, "scatterv": 1, "reduce_scatter": 1, "alltoallv": 2}


class Case(NamedTuple):
    """A drawn case.

    `distance`: between the two views, as a share of the first: 0, or "own" for a call in place.
    `step`: of the views.
    """

    name: str
    form: str
    n: int
    distance: float | str
    step: int
    only: int | None = None  # the only rank with these views; the arrays of the other ranks do not overlap


cases = st.builds(
    Case,
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(FORMS),
    st.sampled_from([8, 1_000, 10_000, 30_000]),
    st.sampled_from(["own", 0.0, 0.01, 0.5, 1.0, 1.5, -0.3, -1.0]),
    st.sampled_from([1, 1, 1, 2, -1]),
    st.sampled_from([None, None, 0, 1]),
)


def distance_of(case: Case, rank: int, size: int) -> int:
    kind = KINDS[case.name]
    return kind.own(rank) * case.n if case.distance == "own" else int(case.distance * kind.result(size) * case.n)


def in_place(case: Case, rank: int, size: int) -> bool:
    return distance_of(case, rank, size) == KINDS[case.name].own(rank) * case.n


def views(case: Case, rank: int, size: int) -> tuple[Array, Array]:
    kind = KINDS[case.name]
    lengths = kind.given(size) * case.n, kind.result(size) * case.n
    room = 4 * max(lengths)
    distance = distance_of(case, rank, size)
    begin = room
    if case.only not in (None, rank):
        return np.zeros(lengths[0]), np.zeros(lengths[1])
    buffer = np.zeros(3 * room)
    step = 1 if case.form == "{}_init" else case.step  # persistent calls take no strided arrays
    stretch = abs(step)
    x, out = (
        buffer[start : start + length * stretch : stretch][:: 1 if step > 0 else -1]
        for start, length in ((begin + distance, lengths[0]), (begin + stretch - 1, lengths[1]))
    )
    return x, out


def values(rank: int, length: int) -> Array:
    return np.arange(length) % 1000 + 1000.0 * (rank + 1)


def make(comm: Any, case: Case, x: Array, out: Array) -> Array:
    call = getattr(comm, case.form.format(case.name))
    lists = [[case.n] * comm.size] * COUNTS.get(case.name, 0)
    if case.form == "{}":
        return call(x, *lists, out=out)
    if case.name == "alltoall":
        lists = []
    made = call(x, *lists, out=out)
    return made.start().wait() if case.form == "{}_init" else made.wait()


def check(comm: Any, case: Case) -> None:
    """Makes and checks the call. ValueError is right only if NumPy finds shared memory."""
    kind = KINDS[case.name]
    x, out = views(case, comm.rank, comm.size)
    shared = np.shares_memory(x, out)
    x[...] = values(comm.rank, len(x))
    try:
        result = make(comm, case, x, out)
    except ValueError as error:
        assert "x and out overlap" in str(error) and shared and not in_place(case, comm.rank, comm.size), (case, error)
        raise
    xs = [values(rank, len(x)) for rank in range(comm.size)]
    right = kind.right(xs, comm.rank)
    if right is None:
        assert result is None, case
    else:
        assert result is out and np.array_equal(out, right), (case, comm.rank)


@settings(max_examples=120, deadline=None)
@given(case=cases, size=st.integers(1, 4), memory=st.sampled_from(["auto", "off"]), again=st.integers(1, 2))
def test_right_or_refused(case: Case, size: int, memory: str, again: int) -> None:
    """If only one rank has overlapping views, that rank raises, and no other rank hangs.

    `again`: repeats the call from the call cache.
    """

    def program(comm: Any) -> None:
        if again > 1:
            check(comm, case._replace(distance=1.5, step=1, only=None))
        check(comm, case)

    try:
        threads.run(size, program, config=Config(shared_memory=memory))
    except ValueError as error:
        assert "overlap" in str(error)


def refuses(case: Case, rank: int, size: int) -> bool:
    """Returns whether this rank refuses the call."""
    x, out = views(case, rank, size)
    reads = rank == ROOT or not case.name.startswith("scatter")
    writes = KINDS[case.name].right([x] * size, rank) is not None
    contiguous = x.flags.c_contiguous and out.flags.c_contiguous
    return not in_place(case, rank, size) and contiguous and reads and writes and np.shares_memory(x, out)


def across_processes(seed: int, count: int) -> None:
    comm = ringcomm.Communicator()
    draw = random.Random(seed)
    while count > 0:
        case = Case(
            draw.choice(sorted(KINDS)),
            draw.choice(FORMS),
            draw.choice([8, 10_000, 100_000]),
            draw.choice(["own", 0.0, 0.01, 0.5, 1.0, -0.3]),
            draw.choice([1, 1, 2, -1]),
        )
        refusals = {refuses(case, rank, comm.size) for rank in range(comm.size)}
        if len(refusals) > 1:
            continue  # some ranks would block until the job ends
        count -= 1
        if refusals == {True}:
            with pytest.raises(ValueError, match="x and out overlap"):
                check(comm, case)
        else:
            check(comm, case)
    comm.close()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("memory", ["auto", "off"])
def test_across_processes(size: int, memory: str) -> None:
    mpi_case.run(size, across_processes, size, 60, variables={"RINGCOMM_SHARED_MEMORY": memory})


def partners(comm: Any, n: int, shift: float, rounds: int) -> None:
    """Exchanges around a ring as MPI_Sendrecv_replace does, and with views that overlap in part."""
    for _ in range(rounds):
        buffer = np.zeros(3 * n)
        x, out = buffer[n : 2 * n], buffer[n + int(shift * n) :][:n]
        x[:] = values(comm.rank, n)
        before = (comm.rank - 1) % comm.size
        status = comm.sendrecv(x, (comm.rank + 1) % comm.size, 3, out, before, 3)
        assert status.source == before and np.array_equal(out, values(before, n)), (n, shift)


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 4),
    n=st.sampled_from([8, 1_000, 10_000, 100_000]),
    shift=st.sampled_from([0.0, 0.0, 0.3, -0.7, 1.0]),
    memory=st.sampled_from(["auto", "off"]),
)
def test_sendrecv_replace(size: int, n: int, shift: float, memory: str) -> None:
    threads.run(size, partners, n, shift, 3, config=Config(shared_memory=memory))


def partners_across_processes() -> None:
    with ringcomm.Communicator() as comm:
        for n in (8, 10_000, 100_000):
            for shift in (0.0, 0.5):
                partners(comm, n, shift, 5)


@pytest.mark.parametrize("memory", ["auto", "off"])
def test_sendrecv_replace_across_processes(memory: str) -> None:
    mpi_case.run(3, partners_across_processes, variables={"RINGCOMM_SHARED_MEMORY": memory})


def test_views_that_interleave_share_nothing() -> None:
    def program(comm: Any) -> None:
        buffer = np.zeros(2 * 10_000)
        x, out = buffer[::2], buffer[1::2]
        x[:] = values(comm.rank, 10_000)
        comm.allreduce(x, out=out)
        assert np.array_equal(out, sum(values(rank, 10_000) for rank in range(comm.size)))
        assert np.array_equal(x, values(comm.rank, 10_000))

    threads.run(2, program)


def test_the_message_says_what_to_do() -> None:
    def program(comm: Any, call: str) -> None:
        buffer = np.zeros(10_001)
        with pytest.raises(
            ValueError, match=rf"{call}: x and out overlap in memory .* x\.copy\(\); in place, out must be x"
        ):
            getattr(comm, call)(buffer[:-1], out=buffer[1:])

    for call in ("allreduce", "broadcast", "reduce", "scan"):
        threads.run(1, program, call)


def test_neighbours() -> None:
    def program(comm: Any) -> None:
        buffer = np.zeros(4 * 5_000)
        ring = comm.neighbours("ring")
        rows = 2 * 5_000 // max(1, len(ring.sends_to))
        with pytest.raises(ValueError, match=r"neighbours.alltoall: x and out overlap"):
            ring.alltoall(buffer[:10_000], rows, out=buffer[100:10_100])
        x = buffer[:5_000]
        x[:] = values(comm.rank, 5_000)
        out = buffer[100 : 100 + 5_000 * len(ring.receives_from)]  # a view of a copy that the call makes
        ring.allgather(x, out=out)
        assert np.array_equal(out, np.concatenate([values(rank, 5_000) for rank in ring.receives_from]))

    threads.run(3, program)


def groups_in_place() -> None:
    ringcomm.init()
    buffer = np.ones(20_000)
    with pytest.raises(ValueError, match=r"tensors\[0\] and tensors\[1\] overlap in memory"):
        ringcomm.grouped_allreduce_([buffer[5_000:], buffer[:10_000]], op=ringcomm.Sum)
    ringcomm.grouped_allreduce_([buffer[10_000:], buffer[:10_000], buffer[:0]], op=ringcomm.Sum)
    assert (buffer == ringcomm.size()).all()


def test_groups_in_place() -> None:
    mpi_case.run(2, groups_in_place)
