"""Adasum against NumPy: any number of ranks, single, fused, named, ordered; and refusals."""

from __future__ import annotations

import mpi_case
import numpy as np
import pytest
from adasum_reference import adasum, pair
from hypothesis import given
from hypothesis import strategies as st
from reference import BFLOAT16, DTYPES, EPSILON, FLOATING, same_bits

import ringcomm
from ringcomm import Adasum, threads

CONFIGS = [ringcomm.Config(shared_memory=shared, segment_bytes=256, algorithm="ring") for shared in ("on", "off")]


def vector(dtype, count, rank, seed):
    """Returns a vector with a different length and direction on every rank."""
    random = np.random.default_rng((seed, rank, count))
    return (random.standard_normal(count) * 2.0 ** random.integers(-3, 4) + rank % 2).astype(dtype)


def check(result, inputs, dtype, factor=1.0):
    """Compares with NumPy. Each level of the reduction may differ by one rounding."""
    expected = adasum(inputs).astype(np.float64) * factor
    scale = max((np.abs(one.astype(np.float64)).max(initial=0) for one in inputs), default=0) * abs(factor)
    np.testing.assert_allclose(
        result.astype(np.float64), expected, rtol=8 * EPSILON[dtype.name], atol=8 * EPSILON[dtype.name] * scale
    )


@given(
    st.integers(1, 9),
    st.sampled_from(FLOATING),
    st.sampled_from([0, 1, 3, 17, 1000]),
    st.sampled_from(CONFIGS),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_number_of_ranks(size, dtype, count, config, in_place, seed):
    inputs = [vector(dtype, count, rank, seed) for rank in range(size)]

    def program(comm):
        x = inputs[comm.rank].copy()
        y = comm.allreduce(x, Adasum, out=x if in_place else None)
        assert (y is x) == in_place and y.dtype == dtype
        later = comm.iallreduce(inputs[comm.rank], Adasum).wait()
        assert later.tobytes() == y.tobytes()
        return y

    results = threads.run(size, program, config=config)
    assert same_bits(results)
    check(results[0], inputs, dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_factors_and_wire(size):
    inputs = [vector(np.float32, 100, rank, 5) for rank in range(size)]

    def program(comm):
        x = inputs[comm.rank]
        scaled = comm.allreduce(x, Adasum, prescale_factor=0.5, postscale_factor=3.0)
        return scaled, comm.allreduce(x, Adasum, wire="bfloat16")

    scaled, narrow = zip(*threads.run(size, program, config=CONFIGS[1]), strict=True)
    assert same_bits(scaled) and same_bits(narrow)
    # Adasum is homogeneous, so the factor may be applied to the result
    check(scaled[0], inputs, np.dtype(np.float32), 1.5)
    if size > 1:
        check(narrow[0], inputs, BFLOAT16 or np.dtype(np.float16))


def test_what_it_is_for():
    """Adasum adds orthogonal vectors and averages parallel ones; zeros change nothing."""
    a, b = np.array([3.0, 0, 1, 0]), np.array([0, 2.0, 0, 5])
    np.testing.assert_array_equal(pair(a, b), a + b)
    for inputs, expected in (([a, b], a + b), ([a, a], a), ([a, 3 * a], 2 * a), ([a, 0 * a], a), ([0 * a] * 2, 0 * a)):
        for result in threads.run(2, lambda comm, inputs=inputs: comm.allreduce(inputs[comm.rank], Adasum)):
            np.testing.assert_allclose(result, expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in FLOATING])
def test_only_of_floating_dtypes(dtype):
    def program(comm):
        with pytest.raises(TypeError, match="Adasum does not support"):
            comm.allreduce(np.ones(3, dtype), Adasum)
        return comm.allreduce(np.ones(3, dtype))

    assert same_bits(threads.run(2, program))


def test_only_of_allreduce_and_by_its_own_algorithm():
    def program(comm):
        x = np.ones(4)
        for call in (comm.reducescatter, comm.reduce):
            with pytest.raises(ValueError, match="Adasum works with allreduce only"):
                call(x, op=Adasum)
        if comm.size > 1:
            with pytest.raises(ValueError, match="not 'ring'"):
                comm.allreduce(x, Adasum, algorithm="ring")
        return comm.allreduce(x, Adasum, algorithm="butterfly_doubling")

    for size in (1, 2, 3):
        for result in threads.run(size, program):
            np.testing.assert_array_equal(result, np.ones(4))


# ---- by name, over MPI -----------------------------------------------------------------------------------------------
SHAPES = [(3,), (4, 5), (), (0,), (1,), (7, 1), (100,), (2000,)]


def named():
    """Each tensor is a separate vector, whatever the groups and the fusion."""
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    for dtype in FLOATING:
        inputs = [
            [vector(dtype, int(np.prod(shape)), r, seed).reshape(shape) for seed, shape in enumerate(SHAPES)]
            for r in range(size)
        ]
        mine = inputs[rank]
        group = ringcomm.grouped_allreduce(mine, op=Adasum, name="group")
        handles = [ringcomm.allreduce_async(x, op=Adasum, name=f"x{i}") for i, x in enumerate(mine)]
        beside = ringcomm.allreduce_async(mine[0], op=ringcomm.Sum, name="sum")
        in_place = [x.copy() for x in mine]
        ringcomm.grouped_allreduce_(in_place, op=Adasum)
        ringcomm.synchronize(beside)
        for i, handle in enumerate(handles):
            result = handle.wait()
            assert result.shape == SHAPES[i]
            assert result.tobytes() == group[i].tobytes() == in_place[i].tobytes()
            check(result, [one[i] for one in inputs], dtype)
            everybody = ringcomm.allgather(result.reshape(1, -1))
            assert all(one.tobytes() == result.tobytes() for one in everybody)
    with pytest.raises(TypeError, match="Adasum"):
        ringcomm.allreduce(np.ones(2, int), op=Adasum)
    with pytest.raises(ValueError, match="Adasum"):
        ringcomm.reducescatter(np.ones(size), op=Adasum)
    half = ringcomm.allreduce(np.ones(3, np.float32), op=Adasum, compression="float16", prescale_factor=2.0)
    assert half.tolist() == [2.0] * 3
    joined(rank, size)


def joined(rank, size):
    """A rank that has joined contributes zeros; the pairing of the ranks does not change."""
    if rank == 0 and size > 1:
        ringcomm.join()
        return
    x = [vector(np.float64, 50, r, 3) if r or size == 1 else np.zeros(50) for r in range(size)]
    for _ in range(2):
        check(ringcomm.allreduce(x[rank], op=Adasum, name="j"), x, np.dtype(np.float64))
        two = ringcomm.grouped_allreduce([x[rank], x[rank][:3]], op=Adasum, name="g")
        check(two[0], x, np.dtype(np.float64))
        check(two[1], [one[:3] for one in x], np.dtype(np.float64))
    ringcomm.join()


@pytest.mark.parametrize(
    ("size", "variables"),
    [
        (1, {}),
        (2, {}),
        (3, {"RINGCOMM_FUSION_BYTES": "0"}),
        (3, {"RINGCOMM_SHARED_MEMORY": "off", "RINGCOMM_ALGORITHM": "ring"}),
        (4, {}),
    ],
)
def test_by_name(size, variables):
    mpi_case.run(size, named, variables=variables)
