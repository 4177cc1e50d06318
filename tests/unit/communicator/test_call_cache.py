"""The call cache of ordered calls on NumPy arrays: later calls use it, with equal results."""

from __future__ import annotations

import collections
import contextlib
import threading
import time

import mpi_case
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import BFLOAT16, same_bits

import ringcomm
from ringcomm import threads as rank_threads
from ringcomm._src.base.ops import wire_number
from ringcomm._src.calls import calls, row_calls
from ringcomm._src.compression.compression import Feedback

MESSAGES = ringcomm.Config(shared_memory="off")
SHARED = ringcomm.Config(shared_memory="auto")
RING = ringcomm.Config(shared_memory="auto", algorithm="ring")
NAMES = (
    "allreduce",
    "reduce",
    "broadcast",
    "allgather",
    "reducescatter",
    "alltoall",
    "barrier",
    "gather",
    "scatter",
    "scan",
)
DTYPES = [np.dtype(np.float32), np.dtype(np.int16), np.dtype(bool), BFLOAT16]
MOVED = [*DTYPES, np.dtype(np.complex128)]


def values(comm, dtype, rows, turn, columns=3):
    start = 17 * comm.rank + turn
    return (np.arange(start, start + rows * columns) % 5).reshape(rows, columns).astype(dtype)


# Calls under test, on arrays of 2 x size rows, and in place if the result has the input's shape.
CALLS = {
    "allreduce": lambda comm, x, **more: comm.allreduce(x, ringcomm.Max, **more),
    "allreduce in place": lambda comm, x, **more: comm.allreduce(x, ringcomm.Sum, out=x, **more),
    "allreduce scaled": lambda comm, x, **more: comm.allreduce(x, ringcomm.Average, None, None, 2.0, 0.5, **more),
    "allreduce as": lambda comm, x, **more: comm.allreduce(x, wire="bfloat16", **more),
    "reduce as": lambda comm, x, **more: comm.reduce(x, comm.size - 1, wire=np.float16, **more),
    "reducescatter as": lambda comm, x, **more: comm.reducescatter(x, wire=BFLOAT16, **more),
    "reduce": lambda comm, x, **more: comm.reduce(x, comm.size - 1, **more),
    "reduce in place": lambda comm, x, **more: comm.reduce(x, 0, ringcomm.Min, x, **more),
    "broadcast": lambda comm, x, **more: comm.broadcast(x, comm.size // 2, **more),
    "broadcast in place": lambda comm, x, **more: comm.broadcast(x, 0, x, **more),
    "allgather": lambda comm, x, **more: comm.allgather(x, **more),
    "allgather told": lambda comm, x, **more: comm.allgather(x, [len(x)] * comm.size, **more),
    "reducescatter": lambda comm, x, **more: comm.reducescatter(x, **more),
    "alltoall": lambda comm, x, **more: comm.alltoall(x, **more),
    "gather": lambda comm, x, **more: comm.gather(x, comm.size - 1, **more),
    "scatter": lambda comm, x, **more: comm.scatter(x, comm.size // 2, **more),
    "scatter into": lambda comm, x, **more: scatter_into(comm, x, **more),
    "scan": lambda comm, x, **more: comm.scan(x, ringcomm.Max, **more),
    "exscan": lambda comm, x, **more: comm.exscan(x, **more),
    "barrier": lambda comm, x, **more: comm.barrier(**more),
}


def scatter_into(comm, x, **more):
    out = np.empty((len(x) // comm.size, *x.shape[1:]), x.dtype)
    result = comm.scatter(x if comm.rank == 0 else None, 0, out, **more)
    assert result is out
    return result


@pytest.fixture
def long_ways(monkeypatch):
    """Returns how many calls of each collective missed the cache, over all ranks."""
    counts = collections.Counter()

    def counted(name, make):
        def call(*arguments, **options):
            counts[name] += 1
            return make(*arguments, **options)

        return call

    for name in NAMES:
        module = calls if hasattr(calls, name) else row_calls
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return counts


@pytest.mark.parametrize("config", [MESSAGES, SHARED, RING], ids=["messages", "shared", "ring"])
@pytest.mark.parametrize("size", range(1, 10))
def test_same_results_as_the_long_way(size, config):
    def program(comm):
        for name, call in CALLS.items():
            for dtype in (
                MOVED if name.split()[0] in ("broadcast", "allgather", "alltoall", "gather", "scatter") else DTYPES
            ):
                for turn in range(3):
                    x, same = (values(comm, dtype, 2 * comm.size, turn) for _ in range(2))
                    result, wanted = call(comm, x), call(comm, same, name="the long way")
                    assert type(result) is type(wanted), name
                    assert (result is x) == (wanted is same), name
                    assert result is None or (result.dtype, result.shape) == (wanted.dtype, wanted.shape), name
                    assert result is None or same_bits([result, wanted]), (name, dtype, turn)
                    assert same_bits([x, same]), name
        return True

    assert rank_threads.run(size, program, config=config) == [True] * size


@pytest.mark.parametrize("name", CALLS)
def test_the_short_way_is_taken(name, long_ways):
    """Only the first call of a kind misses the cache, whichever calls run in between."""

    def program(comm):
        arrays = [values(comm, dtype, 2 * comm.size, 0) for dtype in (np.float32, np.float64, np.int32)]
        for x in arrays:
            CALLS[name](comm, x)
        comm.barrier()
        before = dict(long_ways)
        comm.barrier()
        for _ in range(4):
            for x in arrays:
                CALLS[name](comm, x.copy())
        comm.barrier()
        after = dict(long_ways)
        comm.barrier()
        return before, after

    for before, after in rank_threads.run(3, program, config=SHARED):
        assert before == after


WIRES = [None, "bfloat16", np.float16, ringcomm.Compression.int8, "int4", ringcomm.Compression.threshold(0.5)]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_wires_are_told_apart(size, long_ways):
    """Distinguishes arrays long enough to be encoded, and calls with other wire formats."""

    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(20_000, np.float32)
        wanted = [comm.allreduce(x, wire=wire, name="the long way") for wire in WIRES]
        assert len({one.tobytes() for one in wanted}) == len(WIRES)
        for wire, one in zip(WIRES, wanted, strict=True):  # the cache holds at least this number of kinds at a time
            comm.allreduce(x, wire=wire)
            for _ in range(3):
                again = ringcomm.Compression.threshold(0.5) if wire is WIRES[-1] else wire
                assert same_bits([comm.allreduce(x, wire=again), one]), wire
            comm.barrier()
        with pytest.raises(ValueError, match="only sums and averages"):
            comm.allreduce(x, ringcomm.Max, wire=WIRES[-1])
        with pytest.raises(ValueError, match="no wire format"):
            comm.allreduce(x, wire=["int8"])
        return True

    assert rank_threads.run(size, program, config=MESSAGES) == [True] * size
    # calls with a name, the first call of each kind, and failed calls
    assert long_ways["allreduce"] == size * (2 * len(WIRES) + 1)


def test_feedback_is_kept_though_calls_are_remembered():
    def program(comm):
        x = np.full(4096, 0.3 + comm.rank, np.float32)
        results = []
        for way in ({}, {"name": "the long way"}):
            feedback = Feedback(len(x))
            for _ in range(3):
                comm.allreduce(x, wire="onebit")
                results.append(comm.allreduce(x, wire="onebit", feedback=feedback, **way))
        for short, long in zip(results[:3], results[3:], strict=True):
            assert same_bits([short, long])
        return True

    assert rank_threads.run(2, program, config=MESSAGES) == [True] * 2


def test_ranks_that_differ_in_the_wire_are_told():
    def program(comm):
        x = np.ones(20_000, np.float32)
        for _ in range(2):
            comm.allreduce(x, wire="int8")
            comm.allreduce(x, wire="bfloat16")
        with pytest.raises(ringcomm.MismatchError, match="int8"):
            comm.allreduce(x, wire="int8" if comm.rank == 1 else "bfloat16")
        return True

    assert rank_threads.run(3, program, config=MESSAGES) == [True] * 3


def test_wire_numbers():
    a, b = (ringcomm.Compression.topk(0.25) for _ in range(2))
    assert wire_number(a) == wire_number(b) != wire_number(ringcomm.Compression.topk(0.5))
    many = [wire_number(ringcomm.Compression.threshold(0.001 * n)) for n in range(1, 1000)]
    assert len(set(many)) == len(many)
    assert wire_number(["int8"]) not in many


def test_given_results_are_used_and_checked():
    def program(comm):
        x = values(comm, np.float32, 2 * comm.size, 0)
        rows = {"allgather": 2 * comm.size * comm.size, "reducescatter": 2, "alltoall": 2 * comm.size}
        for name in ("allreduce", "broadcast", "allgather", "reducescatter", "alltoall"):
            call = getattr(comm, name)
            shape = (rows.get(name, 2 * comm.size), 3)
            wanted = call(x)
            for _ in range(3):
                out = np.empty(shape, np.float32)
                assert call(x, out=out) is out and same_bits([out, wanted]), name
            strided = np.empty((2 * shape[0], 3), np.float32)[::2]
            assert call(x, out=strided) is strided and np.array_equal(strided, wanted), name
            wrong = [np.empty(shape, np.float64), np.empty((shape[0] + 1, 3), np.float32), np.empty(shape, np.float32)]
            wrong[2].flags.writeable = False
            for out in wrong:
                with pytest.raises(ValueError, match=r"must be|read-only"):
                    call(x, out=out)
                if name in ("allgather", "alltoall"):
                    continue  # the ranks have exchanged counts by then, so all of them raise
            assert same_bits([call(x), wanted]), name
        return True

    assert rank_threads.run(3, program, config=SHARED) == [True] * 3


def test_rows_that_are_told_change():
    def program(comm):
        for turn in range(9):
            rows = [2, 2 + turn // 2 % 3, 1]
            x = values(comm, np.int32, rows[comm.rank], 0)
            wanted = np.concatenate([(np.arange(17 * r, 17 * r + 3 * rows[r]) % 5).reshape(-1, 3) for r in range(3)])
            for told in (rows, tuple(rows), np.array(rows), list(np.array(rows)), None):
                assert np.array_equal(comm.allgather(x, told), wanted), (turn, told)
            with pytest.raises(TypeError, match=r"rows\[0\] must be an integer, not 2.0"):
                comm.allgather(x, [float(n) for n in rows])
            with pytest.raises(ValueError, match="rows must have 3 entries"):
                comm.allgather(x, rows[:2])
            comm.allgather(x)  # the call cache stores it without counts
            with pytest.raises(ValueError, match="rows must have 3 entries"):
                comm.allgather(x, [])
        return True

    assert rank_threads.run(3, program, config=SHARED) == [True] * 3


def test_other_ranks_rows_change():
    """A rank's own array hits the cache, but the rows of the other ranks have changed."""

    def program(comm):
        seen = []
        for turn in range(8):
            rows = 2 if comm.rank == 0 else 1 + turn // 2 % 2
            seen.append(comm.allgather(values(comm, np.int32, rows, turn)))
            whole = values(comm, np.int32, comm.size, turn)
            splits = None if comm.rank == 0 or turn % 2 == 0 else [comm.size] + [0] * (comm.size - 1)
            got = comm.alltoall(whole, splits)
            seen.append(got if splits is None else got[0])
        return seen

    size = 3
    for rank, seen in enumerate(rank_threads.run(size, program, config=SHARED)):
        for turn in range(8):
            given = [
                np.arange(17 * r + turn, 17 * r + turn + 3 * (2 if r == 0 else 1 + turn // 2 % 2)) for r in range(size)
            ]
            assert np.array_equal(seen[2 * turn], (np.concatenate(given) % 5).reshape(-1, 3))
            whole = [(np.arange(17 * r + turn, 17 * r + turn + 3 * size) % 5).reshape(size, 3) for r in range(size)]
            part = [
                whole[r][rank : rank + 1] if r == 0 or turn % 2 == 0 else whole[r] if rank == 0 else whole[r][:0]
                for r in range(size)
            ]
            assert np.array_equal(seen[2 * turn + 1], np.concatenate(part))


@pytest.mark.parametrize("name", [name for name in CALLS if "in place" not in name])
@pytest.mark.parametrize("config", [MESSAGES, SHARED], ids=["messages", "shared"])
def test_a_mismatch_reads_the_same(name, config):
    """Rank 1 makes another call, or passes another shape, before and after a call is cached."""

    def program(comm, remembered):
        x = values(comm, np.float32, 2 * comm.size, 0)
        if remembered:
            CALLS[name](comm, x)
            comm.barrier()
            comm.allreduce(x[:1])
        texts = []
        for other in (lambda: comm.allreduce(x[:1]), lambda: CALLS[name](comm, values(comm, np.float32, 6, 0, 5))):
            if name == "barrier" and texts:
                continue
            with pytest.raises(ringcomm.MismatchError) as caught:
                other() if comm.rank == 1 else CALLS[name](comm, x)
            texts.append((str(caught.value), caught.value.ranks))
        return texts

    fresh, known = (rank_threads.run(3, program, remembered, config=config) for remembered in (False, True))
    assert fresh == known


# Calls on one array, no two of which agree, and their results from the inputs of all ranks.
# Neighbours differ least.
ALIKE = [
    (lambda comm, x: comm.allreduce(x), lambda rank, of_all: sum(of_all)),
    (lambda comm, x: comm.allreduce(x, ringcomm.Average), lambda rank, of_all: np.mean(of_all, 0, np.float32)),
    (lambda comm, x: comm.allreduce(x, ringcomm.Max), lambda rank, of_all: np.max(of_all, 0)),
    (lambda comm, x: comm.allreduce(x, prescale_factor=2.0), lambda rank, of_all: 2 * sum(of_all)),
    (lambda comm, x: comm.allreduce(x, postscale_factor=2.0), lambda rank, of_all: 2 * sum(of_all)),
    (lambda comm, x: comm.allreduce(x, prescale_factor=0.0), lambda rank, of_all: 0 * of_all[0]),
    (lambda comm, x: comm.allreduce(x, prescale_factor=-0.0), lambda rank, of_all: 0 * of_all[0]),
    (lambda comm, x: comm.reduce(x, 0), lambda rank, of_all: sum(of_all) if rank == 0 else None),
    (lambda comm, x: comm.reduce(x, 1), lambda rank, of_all: sum(of_all) if rank == 1 else None),
    (lambda comm, x: comm.broadcast(x, 0), lambda rank, of_all: of_all[0]),
    (lambda comm, x: comm.broadcast(x, 1), lambda rank, of_all: of_all[1]),
]
numbers = st.integers(0, len(ALIKE) - 1)


steps = st.lists(st.tuples(numbers, st.integers(0, 4), st.integers(-1, 1), st.booleans()), min_size=1, max_size=12)


@given(st.sampled_from([2, 3, 5]), steps)
@settings(max_examples=100)
def test_ranks_that_differ_after_equal_calls(size, drawn):
    """All ranks make a call some times; then rank 1 makes another one or the same, cached or not."""

    def program(comm):
        inputs = [np.float32([1, 2, 3]) * (1 + rank) % 7 for rank in range(size)]

        def check(number, spread=False):
            call, result = ALIKE[number]
            mine = np.repeat(inputs[comm.rank], 2)[::2] if spread else inputs[comm.rank]
            got, wanted = call(comm, mine), result(comm.rank, inputs)
            assert got is None if wanted is None else np.allclose(got, wanted)

        for number, times, change, spread in drawn:
            last = (number + change) % len(ALIKE)
            for _ in range(times):
                check(number)
            with contextlib.nullcontext() if last == number else pytest.raises(ringcomm.MismatchError):
                check(last, spread) if comm.rank == 1 else check(number)
        return True

    assert rank_threads.run(size, program, config=SHARED) == [True] * size


@pytest.mark.parametrize("name", ["reduce", "broadcast"])
def test_a_root_that_is_none(name):
    def program(comm):
        x = np.ones(5, np.float32)
        texts = []
        for _ in range(2):
            with pytest.raises(ValueError) as caught:
                getattr(comm, name)(x, 7)
            texts.append(str(caught.value))
            getattr(comm, name)(x, 0)
        with pytest.raises(TypeError):
            getattr(comm, name)(x, "0")
        return texts

    for first, second in rank_threads.run(2, program, config=SHARED):
        assert first == second and "root 7" in first


def test_after_the_end():
    def program(comm):
        x = np.ones((comm.size, 2), np.float32)
        ways = [call for name, call in CALLS.items() if "in place" not in name]
        for call in ways:
            call(comm, x)
        comm.close()
        for call in ways:
            with pytest.raises(ringcomm.ShutDownError, match="closed"):
                call(comm, x)
        return True

    assert rank_threads.run(2, program, config=SHARED) == [True] * 2


def test_what_is_not_plain_goes_the_long_way():
    def program(comm):
        x = np.ones((2 * comm.size, 3), np.float32)
        for call in (comm.broadcast, comm.reducescatter, comm.allgather, comm.alltoall):
            wanted = call(x)
            for other in (np.asfortranarray(x), x[:, ::1].tolist(), memoryview(x), x.astype(np.float64)):
                assert np.array_equal(call(other), wanted)
            unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
            unaligned[:] = x
            assert np.array_equal(call(unaligned), wanted)
        return True

    assert rank_threads.run(2, program, config=SHARED) == [True] * 2


def test_nothing_is_remembered_of_calls_with_options(long_ways):
    def program(comm):
        x = np.arange(4, dtype=np.float32)
        counts = []
        for options in ({"name": "named"}, {"algorithm": "ring"}, {}, {}, {"name": "", "algorithm": None}):
            comm.allreduce(x, **options)
            counts.append(long_ways["allreduce"])
        return counts

    assert rank_threads.run(1, program, config=SHARED) == [[1, 2, 3, 3, 3]]


@pytest.mark.parametrize("config", [MESSAGES, SHARED], ids=["messages", "shared"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_rows_that_change_now_and_then(size, config):
    """Calls run within the exchange of rows (speculation) if these are as expected."""

    def program(comm):
        draw = np.random.default_rng(size)  # identical on all ranks
        rows = [2] * size
        for turn in range(60):
            if draw.random() < 0.5:
                rows[draw.integers(size)] = int(draw.choice([0, 1, 2, 300, 9000]))
            if draw.random() < 0.2:
                rows = [int(draw.choice([2, 300]))] * size
            given = [
                np.full((rank_rows * size, 2), 100 * rank + turn, np.float32) for rank, rank_rows in enumerate(rows)
            ]
            for rank, array in enumerate(given):
                array[:, 0] = np.arange(len(array)) + rank
            mine = given[comm.rank]
            assert np.array_equal(comm.allgather(mine), np.concatenate(given)), (turn, rows)
            parts = [np.split(array, size)[comm.rank] for array in given]
            assert np.array_equal(comm.alltoall(mine), np.concatenate(parts)), (turn, rows)
            if len(set(rows)) == 1:
                assert np.array_equal(comm.alltoall(mine.copy(), out=mine), np.concatenate(parts)), (turn, rows)
                assert np.array_equal(mine, np.concatenate(parts))
        return True

    assert rank_threads.run(size, program, config=config) == [True] * size


def test_a_cached_sum_does_not_serve_ops_of_other_kinds():
    def program(comm):
        x = np.arange(4, dtype=np.float32) + comm.rank
        first = comm.allreduce(x, op=ringcomm.Adasum)
        for _ in range(2):  # the second call is served from the cache
            assert np.array_equal(comm.allreduce(x), comm.size * np.arange(4) + sum(range(comm.size)))
            comm.scan(x)
        again = comm.allreduce(x, op=ringcomm.Adasum)
        assert same_bits([again, first]) and not same_bits([again, comm.allreduce(x)])
        largest = ringcomm.Op.create(lambda a, b: np.copyto(b, np.maximum(a, b)))
        assert np.array_equal(comm.allreduce(x, op=largest), np.arange(4) + comm.size - 1)
        for op in (ringcomm.Average, ringcomm.Adasum):
            with pytest.raises((TypeError, ValueError)):
                comm.scan(x, op=op)
        return True

    for size in (2, 3):
        assert rank_threads.run(size, program, config=SHARED) == [True] * size


def daemon_in_a_call() -> None:
    comm = ringcomm.Communicator()
    x = np.ones(1 << 24, np.float32)
    out = comm.allreduce(x)

    def repeat() -> None:
        with contextlib.suppress(ringcomm.ShutDownError):
            while True:
                comm.allreduce(x, out=out)

    threading.Thread(target=repeat, daemon=True).start()
    time.sleep(0.1)


def test_the_program_may_end_while_a_daemon_thread_is_in_a_call():
    result = mpi_case.start(0, daemon_in_a_call)
    assert result.status == 0, result.text
