"""Ordered collectives, on threads: every algorithm, dtype, reduction and size, by every route.

Results are compared with plain sums. The trace shows which route ran, so a test cannot pass by
another route.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import BFLOAT16, DTYPES, EPSILON, FLOATING, check_reduced, integers, reduced, same_bits

import ringcomm
from ringcomm import threads
from ringcomm._src.base.ops import Op
from ringcomm._src.core import _core
from ringcomm._src.observe.events import Listener

ALIASES = {a.name: a.alias for a in _core.algorithms() if a.alias}
ALLREDUCE = sorted({a.name for a in _core.algorithms() if a.collective == "allreduce"} | set(ALIASES.values()))
MESSAGES = ringcomm.Config(shared_memory="off")
SHARED = ringcomm.Config(shared_memory="on")
SMALL_PIECES = ringcomm.Config(shared_memory="off", segment_bytes=64, window=2)

sizes = st.integers(1, 9)
ops = st.sampled_from([op for op in Op if op.scaled and op != Op.Adasum])  # ops on all numeric dtypes
dtypes = st.sampled_from(DTYPES)


def names_of(collective):
    return sorted(a.name for a in _core.algorithms() if a.collective == collective)


def counts(size):
    return st.sampled_from(sorted({0, 1, size - 1, size, size + 1, 97}))


def traced(size, fn, *args, config=MESSAGES):
    """Returns each rank's result, and the routes of its calls."""
    with Listener() as listener:
        results = threads.run(size, fn, *args, config=config)
    events = [event for event in listener.take() if event.category == "run" and event.name != "close()"]
    paths = [[event.detail for event in events if event.rank == rank] for rank in range(size)]
    assert all(one == paths[0] for one in paths), paths
    return results, paths[0]


def stands_for(asked, path):
    """Returns True if `path` may run the requested algorithm: an alias has two, by size."""
    return asked in (path, ALIASES.get(path))


# ---- allreduce -------------------------------------------------------------------------------------------------------
@given(st.data(), sizes, dtypes, ops, st.sampled_from(ALLREDUCE), st.booleans(), st.integers(0, 99))
@settings(max_examples=250)
def test_allreduce_by_every_algorithm_is_exact(data, size, dtype, op, algorithm, in_place, seed):
    count = data.draw(counts(size))
    inputs = [integers(dtype, count, rank, op, seed) for rank in range(size)]

    def program(comm):
        x = inputs[comm.rank].copy()
        y = comm.allreduce(x, op, out=x if in_place else None, algorithm=algorithm)
        assert (y is x) == in_place
        assert in_place or np.array_equal(x, inputs[comm.rank])
        return y

    results, paths = traced(size, program)
    assert stands_for("local" if size == 1 else algorithm, paths[0]) and len(paths) == 1
    assert same_bits(results)
    check_reduced(op, inputs, results[0])


@pytest.mark.parametrize("algorithm", [*ALLREDUCE, "shared"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_allreduce_of_many_segments(algorithm, size):
    dtypes_here = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(np.int64)]
    inputs = {dtype: [integers(dtype, 100_003, rank, Op.Sum, 7) for rank in range(size)] for dtype in dtypes_here}
    config = SHARED if algorithm == "shared" else ringcomm.Config(shared_memory="off", segment_bytes=4096, window=3)

    def program(comm):
        return [comm.allreduce(inputs[dtype][comm.rank], algorithm=algorithm) for dtype in dtypes_here]

    results, paths = traced(size, program, config=config)
    assert all(stands_for(algorithm, path) for path in paths) and len(paths) == len(dtypes_here)
    for i, dtype in enumerate(dtypes_here):
        assert same_bits([result[i] for result in results])
        check_reduced(Op.Sum, inputs[dtype], results[0][i])


@given(st.data(), sizes, dtypes, ops, st.booleans(), st.integers(0, 99))
@settings(max_examples=150)
def test_allreduce_through_shared_memory(data, size, dtype, op, in_place, seed):
    count = data.draw(counts(size))
    inputs = [integers(dtype, count, rank, op, seed) for rank in range(size)]

    def program(comm):
        x = inputs[comm.rank].copy()
        return comm.allreduce(x, op, out=x if in_place else None)

    results, paths = traced(size, program, config=ringcomm.Config(shared_memory="auto"))
    assert paths == ["local" if size == 1 else "shared"]
    assert same_bits(results)
    check_reduced(op, inputs, results[0])


@given(sizes, st.sampled_from(FLOATING), st.sampled_from([*ALLREDUCE, "shared"]), st.integers(0, 999))
def test_sums_of_reals_are_close_and_equal_on_all_ranks(size, dtype, algorithm, seed):
    inputs = [np.random.default_rng((seed, rank)).standard_normal(257).astype(dtype) for rank in range(size)]
    config = SHARED if algorithm == "shared" and size > 1 else MESSAGES
    algorithm = None if size == 1 else algorithm
    results = threads.run(size, lambda comm: comm.allreduce(inputs[comm.rank], algorithm=algorithm), config=config)
    assert same_bits(results)
    wide = np.array([one.astype(np.float64) for one in inputs])
    bound = size * EPSILON[dtype.name] * np.abs(wide).sum(axis=0)
    assert np.all(np.abs(results[0].astype(np.float64) - wide.sum(axis=0)) <= bound)


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]


@given(
    st.integers(1, 5),
    st.sampled_from(FLOATING),
    ops,
    st.sampled_from([*ALLREDUCE, "shared"]),
    st.lists(st.lists(st.sampled_from(SPECIAL), min_size=5, max_size=5), min_size=6, max_size=6),
)
@settings(max_examples=150)
def test_special_values(size, dtype, op, algorithm, table):
    """NaN takes precedence, -0 < +0, infinities follow IEEE 754, ranks get identical bits."""
    inputs = [np.array([row[rank] for row in table], dtype) for rank in range(size)]
    config = SHARED if algorithm == "shared" and size > 1 else MESSAGES
    name = None if size == 1 else algorithm
    results = threads.run(size, lambda comm: comm.allreduce(inputs[comm.rank], op, algorithm=name), config=config)
    assert same_bits(results)
    result = results[0].astype(np.float64)
    wide = [one.astype(np.float64) for one in inputs]
    with np.errstate(invalid="ignore"):
        if op in (Op.Min, Op.Max):
            lowest = np.where(
                np.any(np.isnan(wide), axis=0), np.nan, (np.min if op == Op.Min else np.max)(wide, axis=0)
            )
            np.testing.assert_array_equal(result, lowest)
            signs = [np.signbit(one) & (one == 0) for one in wide]
            zero = lowest == 0
            negative = (
                np.any(signs, axis=0)
                if op == Op.Min
                else ~np.any([~s & (o == 0) for s, o in zip(signs, wide, strict=True)], axis=0)
            )
            np.testing.assert_array_equal(np.signbit(result)[zero], negative[zero])
        else:
            expected = np.prod(wide, axis=0) if op == Op.Product else np.sum(wide, axis=0)
            expected = expected / size if op == Op.Average else expected
            np.testing.assert_allclose(result, expected, rtol=4 * EPSILON[dtype.name])


@pytest.mark.parametrize("config", [MESSAGES, SHARED], ids=["messages", "memory"])
@given(sizes, st.sampled_from(FLOATING), st.sampled_from([1, 7, 3000]), st.integers(0, 99))
@example(3, np.dtype(np.float32), 1, 0)
@settings(max_examples=40)
def test_averages_are_quotients(config, size, dtype, count, seed):
    """Averages by every route equal NumPy's quotient of the sum and the number of ranks.

    A postscale factor multiplies before the division. Sums are integers that every dtype
    represents, 150 / 3 among them.
    """
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(0, 26, (size, count)).astype(dtype) for _ in range(size)]
    for rank, one in enumerate(inputs):
        one[:, 0] = 150 // size + (rank < 150 % size)

    def program(comm):
        x, op = inputs[comm.rank], Op.Average
        background = comm.iallreduce(x, op), comm.iallreduce(x, op, postscale_factor=4.0)
        return [
            comm.allreduce(x, op),
            *(one.wait() for one in background),
            comm.reduce(x, 0, op),
            comm.reducescatter(x, op),
        ]

    results = threads.run(size, program, config=config if size > 1 else MESSAGES)  # a single rank shares no memory
    mean = reduced(Op.Average, inputs)
    scaled = reduced(Op.Average, [4 * one.astype(np.float64) for one in inputs]).astype(dtype)
    for rank, (ordered, background, by_four, rooted, rows) in enumerate(results):
        for result in (ordered, background) + ((rooted,) if rank == 0 else ()):
            np.testing.assert_array_equal(result, mean)
        np.testing.assert_array_equal(by_four, scaled)
        np.testing.assert_array_equal(rows, mean[rank : rank + 1])


@given(
    st.integers(1, 5),
    st.sampled_from(FLOATING),
    ops,
    st.sampled_from([0.5, 2.0, -4.0]),
    st.sampled_from([0.25, 1.0, 8.0]),
    st.booleans(),
)
def test_scales(size, dtype, op, pre, post, shared):
    inputs = [integers(dtype, 11, rank, op, 3) for rank in range(size)]
    config = ringcomm.Config(shared_memory="on" if shared and size > 1 else "off")
    program = lambda comm: comm.allreduce(inputs[comm.rank], op, prescale_factor=pre, postscale_factor=post)  # noqa: E731
    results = threads.run(size, program, config=config)
    wide = [one.astype(np.float64) * pre for one in inputs]
    fold = {Op.Min: np.min, Op.Max: np.max, Op.Product: np.prod, Op.Sum: np.sum, Op.Average: np.mean}[op]
    with np.errstate(over="ignore"):
        expected = (fold(wide, axis=0) * post).astype(dtype).astype(np.float64)
    assert same_bits(results)
    np.testing.assert_allclose(results[0].astype(np.float64), expected, rtol=4 * EPSILON[dtype.name])


@given(
    st.integers(2, 5),
    st.sampled_from(["float16", "bfloat16"]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(ALLREDUCE),
)
def test_narrow_wire(size, wire, dtype, algorithm):
    """Integers of the wire's dtype are sent exactly; otherwise ranks get the same bits."""
    exact = [integers(np.dtype(dtype), 50, rank, Op.Sum, 1) for rank in range(size)]
    real = [np.random.default_rng(rank).standard_normal(50).astype(dtype) for rank in range(size)]

    def program(comm):
        return [comm.allreduce(one[comm.rank], algorithm=algorithm, wire=wire) for one in (exact, real)]

    results = threads.run(size, program, config=MESSAGES)
    check_reduced(Op.Sum, exact, results[0][0])
    assert same_bits([result[1] for result in results])
    bound = 2 * size * EPSILON[wire] * np.abs(real).sum(axis=0)
    assert np.all(np.abs(results[0][1] - np.sum(real, axis=0)) <= bound)


# ---- the other collectives -------------------------------------------------------------------------------------------
@given(st.data(), sizes, dtypes, ops, st.sampled_from(names_of("reduce")), st.integers(0, 99))
def test_reduce(data, size, dtype, op, algorithm, seed):
    count, root = data.draw(counts(size)), data.draw(st.integers(0, size - 1))
    inputs = [integers(dtype, count, rank, op, seed) for rank in range(size)]
    results, paths = traced(size, lambda comm: comm.reduce(inputs[comm.rank].copy(), root, op, algorithm=algorithm))
    assert paths == ["local" if size == 1 else algorithm]
    assert all(result is None for rank, result in enumerate(results) if rank != root)
    check_reduced(op, inputs, results[root])


@given(
    st.data(),
    sizes,
    st.sampled_from([*DTYPES, np.dtype(np.complex128), np.dtype("V3")]),
    st.sampled_from(names_of("broadcast")),
    st.booleans(),
)
def test_broadcast(data, size, dtype, algorithm, in_place):
    count, root = data.draw(counts(size)), data.draw(st.integers(0, size - 1))
    inputs = [
        np.frombuffer(np.random.default_rng(rank).bytes(count * dtype.itemsize), np.uint8).view(dtype)
        for rank in range(size)
    ]

    def program(comm):
        x = inputs[comm.rank].copy()
        return comm.broadcast(x, root, out=x if in_place else None, algorithm=algorithm)

    results, paths = traced(size, program, config=SMALL_PIECES)
    assert paths == ["local" if size == 1 else algorithm]
    assert all(result.tobytes() == inputs[root].tobytes() and result.dtype == dtype for result in results)


@given(st.data(), sizes, st.sampled_from([*DTYPES, np.dtype(np.complex64)]), st.sampled_from(names_of("allgather")))
def test_allgather_of_unequal_rows(data, size, dtype, algorithm):
    rows = data.draw(st.lists(st.integers(0, 7), min_size=size, max_size=size))
    width = data.draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    inputs = [np.random.default_rng(rank).integers(0, 2, (rows[rank], *width)).astype(dtype) for rank in range(size)]
    known = data.draw(st.booleans())

    def program(comm):
        return comm.allgather(inputs[comm.rank], rows if known else None, algorithm=algorithm)

    results, paths = traced(size, program, config=SMALL_PIECES)
    assert paths[-1] == ("local" if size == 1 else algorithm)
    assert len(paths) == (1 if known else 2)
    for result in results:
        np.testing.assert_array_equal(result, np.concatenate(inputs))
        assert result.dtype == dtype


@given(st.data(), sizes, dtypes, ops, st.sampled_from(names_of("reducescatter")))
def test_reducescatter_cuts_the_first_dimension(data, size, dtype, op, algorithm):
    rows, width = data.draw(counts(size)), data.draw(st.sampled_from([(), (3,)]))
    count = int(np.prod((rows, *width)))
    inputs = [integers(dtype, count, rank, op, 5).reshape(rows, *width) for rank in range(size)]
    results, paths = traced(
        size, lambda comm: comm.reducescatter(inputs[comm.rank].copy(), op, algorithm=algorithm), config=SMALL_PIECES
    )
    assert paths == ["local" if size == 1 else algorithm]
    assert [len(result) for result in results] == [rows // size + (rank < rows % size) for rank in range(size)]
    check_reduced(op, inputs, np.concatenate(results))


@given(st.data(), sizes, st.sampled_from([*DTYPES, np.dtype(np.complex64)]), st.sampled_from(["direct", "pairwise"]))
def test_alltoall_with_splits(data, size, dtype, algorithm):
    matrix = data.draw(
        st.lists(st.lists(st.integers(0, 4), min_size=size, max_size=size), min_size=size, max_size=size)
    )
    width = data.draw(st.sampled_from([(), (2,)]))
    inputs = [np.random.default_rng(r).integers(0, 2, (sum(matrix[r]), *width)).astype(dtype) for r in range(size)]
    results, paths = traced(size, lambda comm: comm.alltoall(inputs[comm.rank], matrix[comm.rank], algorithm=algorithm))
    assert paths[-1] == ("local" if size == 1 else algorithm)
    starts = [np.concatenate([[0], np.cumsum(row)]) for row in matrix]
    for rank, (output, received) in enumerate(results):
        assert received.tolist() == [matrix[r][rank] for r in range(size)]
        np.testing.assert_array_equal(
            output, np.concatenate([inputs[r][starts[r][rank] : starts[r][rank + 1]] for r in range(size)])
        )


@given(st.integers(1, 9), st.integers(0, 3), st.sampled_from(names_of("alltoall")), st.sampled_from(DTYPES))
def test_alltoall_of_even_parts(size, rows, algorithm, dtype):
    inputs = [integers(dtype, size * rows, rank, Op.Sum, 2) for rank in range(size)]
    results, paths = traced(size, lambda comm: comm.alltoall(inputs[comm.rank], algorithm=algorithm))
    assert paths[-1] == ("local" if size == 1 else algorithm)
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, np.concatenate([one[rank * rows : (rank + 1) * rows] for one in inputs]))


@pytest.mark.parametrize("config", [MESSAGES, ringcomm.Config()])
@given(st.integers(1, 9))
@settings(max_examples=9)
def test_barrier_waits_for_everybody(config, size):
    arrived = []

    def program(comm):
        for turn in range(3):
            arrived.append(turn)
            comm.barrier()
            assert arrived.count(turn) == size

    threads.run(size, program, config=config)


# ---- non-blocking ----------------------------------------------------------------------------------------------------
@given(
    st.integers(1, 5),
    st.lists(
        st.sampled_from(["allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall"]), max_size=8
    ),
)
@example(3, ["alltoall", "reduce", "allreduce", "allgather", "broadcast", "reducescatter"])
@settings(max_examples=40)
def test_background_calls_give_what_the_blocking_ones_give(size, kinds):
    def program(comm):
        x = np.arange(size * 6, dtype=np.float32).reshape(size * 3, 2) + comm.rank
        handles = [getattr(comm, f"i{kind}")(x) for kind in kinds]
        last = comm.ibarrier()
        blocking = [getattr(comm, kind)(x) for kind in kinds]
        last.wait()
        assert all(handle.test() for handle in handles)
        return [(handle.wait(), handle.result, other) for handle, other in zip(handles, blocking, strict=True)]

    for result in threads.run(size, program):
        for background, again, blocking in result:
            assert background is again
            np.testing.assert_array_equal(background, blocking)


def test_a_dropped_handle_keeps_its_buffers():
    def program(comm):
        total = np.zeros(1)
        for turn in range(50):
            comm.iallreduce(np.full(10_000, turn, np.float64), out=np.empty(10_000))
        handle = comm.iallreduce(np.ones(1), out=total)
        handle.wait()
        return total[0]

    assert threads.run(3, program) == [3.0] * 3


if BFLOAT16 is None:

    @pytest.mark.parametrize("size", [1, 2, 3, 5])
    def test_bfloat16_by_torch(size):
        torch = pytest.importorskip("torch")

        def program(comm):
            return [
                comm.allreduce(torch.full((9,), comm.rank + 1.0, dtype=torch.bfloat16), algorithm=a)
                for a in (None, *ALLREDUCE)
            ]

        for result in threads.run(size, program, config=MESSAGES):
            for one in result:
                assert one.dtype == torch.bfloat16 and one.tolist() == [size * (size + 1) / 2] * 9
