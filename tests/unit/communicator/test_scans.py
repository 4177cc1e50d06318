"""Scans, and reduce-scatters with given rows, compared with NumPy; ranks are threads."""

from __future__ import annotations

import itertools

import numpy as np
from drawn_calls import both, configs, rows_of_ranks, same, seeds, sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import DTYPES, integers

from ringcomm import threads
from ringcomm._src.base.ops import Op


def compose(first, then):
    """Composes maps x -> a x + b modulo 97: associative, not commutative."""
    a, b = first["a"] * then["a"] % 97, (then["a"] * first["b"] + then["b"]) % 97
    then["a"], then["b"] = a, b


def prefixes(combine, inputs):
    return list(itertools.accumulate(inputs, combine))


def composed(first, then):
    after = then.copy()
    compose(first, after)
    return after


@given(
    sizes,
    configs,
    st.sampled_from(DTYPES),
    st.sampled_from([Op.Sum, Op.Min, Op.Max, Op.Product]),
    st.sampled_from([(), (0,), (1,), (7, 3), (50_001,)]),
    seeds,
)
@settings(max_examples=80, deadline=None)
def test_scans(size, config, dtype, op, shape, seed):
    count = int(np.prod(shape))
    inputs = [integers(dtype, count, rank, op, seed).reshape(shape) for rank in range(size)]
    combine = {Op.Sum: np.add, Op.Min: np.minimum, Op.Max: np.maximum, Op.Product: np.multiply}[op]
    want = prefixes(lambda a, b: np.asarray(combine(a, b)).astype(dtype), inputs)

    def program(comm):
        x = inputs[comm.rank]
        assert np.array_equal(both(comm, "scan", x, op), want[comm.rank])
        assert np.array_equal(comm.scan(x, op, algorithm="doubling"), want[comm.rank])
        before = both(comm, "exscan", x, op.name.lower())
        assert before is None if comm.rank == 0 else np.array_equal(before, want[comm.rank - 1])
        out = x.copy()
        assert comm.scan(out, op, out) is out and np.array_equal(out, want[comm.rank])
        assert np.array_equal(x, inputs[comm.rank])

    threads.run(size, program, config=config)


@given(sizes, configs, st.sampled_from([0, 1, 97, 40_000]), seeds, rows_of_ranks)
@settings(max_examples=40, deadline=None)
def test_functions_scan_and_reduce_scatter_in_the_order_of_ranks(size, config, count, seed, rows):
    rows = rows[:size]
    rng = np.random.default_rng(seed)

    def maps(number):
        x = np.zeros(number, [("a", "i8"), ("b", "i8")])
        x["a"], x["b"] = rng.integers(1, 97, number), rng.integers(0, 97, number)
        return x

    scanned, cut = [maps(count) for _ in range(size)], [maps(sum(rows)) for _ in range(size)]
    want = prefixes(composed, scanned)
    total = prefixes(composed, cut)[-1]
    op = Op.create(compose, commutative=False)

    def program(comm):
        assert np.array_equal(both(comm, "scan", scanned[comm.rank], op), want[comm.rank])
        before = both(comm, "exscan", scanned[comm.rank], op)
        assert before is None if comm.rank == 0 else np.array_equal(before, want[comm.rank - 1])
        start = sum(rows[: comm.rank])
        part = both(comm, "reduce_scatter", cut[comm.rank], rows, op)
        assert np.array_equal(part, total[start : start + rows[comm.rank]])

    threads.run(size, program, config=config)


@given(sizes, configs, st.sampled_from(DTYPES), rows_of_ranks, seeds)
@settings(max_examples=40, deadline=None)
def test_reduce_scatter(size, config, dtype, rows, seed):
    rows = rows[:size]
    inputs = [integers(dtype, 3 * sum(rows), rank, Op.Max, seed).reshape(-1, 3) for rank in range(size)]
    total = np.maximum.reduce(inputs)

    def program(comm):
        start = sum(rows[: comm.rank])
        part = both(comm, "reduce_scatter", inputs[comm.rank], rows, Op.Max)
        assert same(part, total[start : start + rows[comm.rank]])
        even = comm.reducescatter(inputs[comm.rank], Op.Max)
        assert same(comm.reduce_scatter(inputs[comm.rank], op=Op.Max), even)

    threads.run(size, program, config=config)


TRUTH = {
    Op.LAND: lambda x, y: np.logical_and(x, y),
    Op.LOR: lambda x, y: np.logical_or(x, y),
    Op.LXOR: lambda x, y: np.logical_xor(x, y),
}


@given(
    sizes,
    configs,
    st.sampled_from(["int8", "uint16", "int32", "int64", "bool"]),
    st.sampled_from(list(TRUTH)),
    st.sampled_from([0, 1, 7, 4_000, 70_000]),
    seeds,
)
@settings(max_examples=60, deadline=None)
def test_logical_ops_give_0_and_1(size, config, dtype, op, count, seed):
    """Logical ops return 0 and 1 also on ranks that combine nothing, in every call that reduces."""
    drawn = np.random.default_rng(seed)
    inputs = [
        (drawn.integers(-3, 4, count * size) if dtype != "uint16" else drawn.integers(0, 3, count * size))
        for _ in range(size)
    ]
    inputs = [one.astype(dtype) for one in inputs]
    so_far = [one.astype(bool) for one in prefixes(TRUTH[op], [one != 0 for one in inputs])]
    want = [one.astype(dtype) for one in so_far]

    def program(comm):
        x, rank = inputs[comm.rank], comm.rank
        mine = slice(rank * count, (rank + 1) * count)
        for again in range(2):
            assert np.array_equal(both(comm, "scan", x, op), want[rank]), again
            before = both(comm, "exscan", x, op)
            assert before is None if rank == 0 else np.array_equal(before, want[rank - 1])
            assert np.array_equal(both(comm, "allreduce", x, op), want[-1])
            assert np.array_equal(both(comm, "reducescatter", x, op), want[-1][mine])
            out = both(comm, "reduce", x, 0, op)
            assert out is None if rank else np.array_equal(out, want[-1])
            out = x.copy()
            assert comm.scan(out, op, out) is out and np.array_equal(out, want[rank])
        assert np.array_equal(x, inputs[rank])

    threads.run(size, program, config=config)
