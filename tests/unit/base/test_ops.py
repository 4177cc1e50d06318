"""Every op and dtype: compared with NumPy on threads, and with mpi4py's Allreduce on MPI."""

from __future__ import annotations

import functools

import mpi_case
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import same_bits

import ringcomm
from ringcomm import threads
from ringcomm._src.base.ops import NUMBERS, Op, as_op
from ringcomm._src.core import _core

CONFIGS = [ringcomm.Config(shared_memory=how) for how in ("off", "auto")]
INTEGERS = [np.dtype(name) for name in NUMBERS if "int" in name]
COMPLEX = [np.dtype(np.complex64), np.dtype(np.complex128)]
BITS = {Op.BAND: np.bitwise_and, Op.BOR: np.bitwise_or, Op.BXOR: np.bitwise_xor}
LOGIC = {Op.LAND: np.logical_and, Op.LOR: np.logical_or, Op.LXOR: np.logical_xor}
PAIRS = [
    np.dtype([("value", value), ("index", index)], align=True)
    for value in ("i2", "i4", "i8", "f4", "f8")
    for index in ("i4", "i8")
]
LOCATED = {Op.MINLOC: -1, Op.MAXLOC: 1}

sizes = st.integers(1, 9)
configs = st.sampled_from(CONFIGS)
lengths = st.sampled_from([0, 1, 5, 97, 3001])
seeds = st.integers(0, 99)


def numbers(dtype, count, rank, seed):
    rng = np.random.default_rng((seed, rank))
    if dtype.names:
        x = np.zeros(count, dtype)
        x["value"], x["index"] = rng.integers(-3, 4, count), rng.integers(0, 9, count)
        return x
    if dtype.kind == "c":
        return (rng.integers(-2, 3, count) + 1j * rng.integers(-2, 3, count)).astype(dtype)
    return rng.integers(0, 4 if dtype.kind != "b" else 2, count).astype(dtype)


def located(op, a, b):
    """Reduces two arrays of (value, index) pairs; if values are equal, the lower index wins."""
    sign = LOCATED[op]
    first = (sign * a["value"] > sign * b["value"]) | ((a["value"] == b["value"]) & (a["index"] <= b["index"]))
    return np.where(first, a, b)


def fold(op, inputs):
    dtype = inputs[0].dtype
    if op in LOCATED:
        return functools.reduce(functools.partial(located, op), inputs)
    # results are 0 and 1 even if there is only one rank
    first, *others = [one != 0 for one in inputs] if op in LOGIC else inputs
    return functools.reduce((BITS | LOGIC | {Op.Sum: np.add, Op.Product: np.multiply})[op], others, first).astype(dtype)


def reduce_everywhere(size, config, op, inputs, **how):
    def program(comm):
        x = inputs[comm.rank]
        results = comm.allreduce(x, op, **how), comm.reduce(x, size - 1, op), comm.reducescatter(x, op)
        assert np.array_equal(x, inputs[comm.rank])
        for i, handle in enumerate((comm.iallreduce(x, op), comm.ireduce(x, 0, op), comm.ireducescatter(x, op))):
            later = handle.wait()
            if i != 1:
                assert later.tobytes() == results[i].tobytes()
        return results

    results = threads.run(size, program, config=config)
    assert same_bits([everywhere for everywhere, _, _ in results])
    assert [at_root is None for _, at_root, _ in results] == [True] * (size - 1) + [False]
    for other in results[-1][1], np.concatenate([part for _, _, part in results]):
        assert np.array_equal(other, results[0][0])  # equal except for the signs of zeros in complex products
    return results[0][0]


@given(sizes, configs, st.sampled_from([*INTEGERS, np.dtype(bool)]), st.sampled_from([*BITS, *LOGIC]), lengths, seeds)
@settings(max_examples=80, deadline=None)
def test_bits_and_logic(size, config, dtype, op, count, seed):
    inputs = [numbers(dtype, count, rank, seed) for rank in range(size)]
    np.testing.assert_array_equal(reduce_everywhere(size, config, op, inputs), fold(op, inputs))


@given(sizes, configs, st.sampled_from(PAIRS), st.sampled_from([*LOCATED]), lengths, seeds)
@settings(max_examples=60, deadline=None)
def test_least_and_largest_with_their_places(size, config, dtype, op, count, seed):
    inputs = [numbers(dtype, count, rank, seed) for rank in range(size)]
    result, want = reduce_everywhere(size, config, op, inputs), fold(op, inputs)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result["value"], want["value"])
    np.testing.assert_array_equal(result["index"], want["index"])


@given(sizes, configs, st.sampled_from(COMPLEX), st.sampled_from([Op.Sum, Op.Product]), lengths, seeds)
@settings(max_examples=60, deadline=None)
def test_complex_numbers(size, config, dtype, op, count, seed):
    inputs = [numbers(dtype, count, rank, seed) for rank in range(size)]
    np.testing.assert_array_equal(reduce_everywhere(size, config, op, inputs), fold(op, inputs))
    averages = reduce_everywhere(size, config, Op.Average, inputs, prescale_factor=1.0)
    total = fold(Op.Sum, inputs)
    part = np.finfo(dtype).dtype.type
    np.testing.assert_array_equal(averages.real, total.real / part(size))
    np.testing.assert_array_equal(averages.imag, total.imag / part(size))


def compose(first, then):
    """Composes maps x -> a x + b modulo 97, given as pairs (a, b): associative, not commutative."""
    a, b = first["a"] * then["a"] % 97, (then["a"] * first["b"] + then["b"]) % 97
    then["a"], then["b"] = a, b


@given(sizes, configs, lengths, seeds, st.booleans())
@settings(max_examples=40, deadline=None)
def test_functions_run_in_the_order_of_ranks(size, config, count, seed, large):
    count = count * 50 if large else count
    rng = np.random.default_rng(seed)
    inputs = [np.zeros(count, [("a", "i8"), ("b", "i8")]) for _ in range(size)]
    for x in inputs:
        x["a"], x["b"] = rng.integers(1, 97, count), rng.integers(0, 97, count)
    result = reduce_everywhere(size, config, Op.create(compose, commutative=False), inputs)
    want = inputs[0].copy()
    for x in inputs[1:]:
        after = x.copy()
        compose(want, after)
        want = after
    np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("count", [3, 100_000])
def test_a_function_that_raises_fails_on_every_rank(count):
    def raising(invec, inoutvec):
        raise ZeroDivisionError("mine")

    def returning(invec, inoutvec):
        return invec + inoutvec

    def program(comm):
        with pytest.raises(ZeroDivisionError, match="mine"):
            comm.allreduce(np.ones(count), Op.create(raising))
        with pytest.raises(TypeError, match="must put its result into inoutvec"):
            comm.allreduce(np.ones(count), Op.create(returning))
        with pytest.raises(ValueError, match="takes no algorithm"):
            comm.allreduce(np.ones(count), Op.create(compose), algorithm="ring")
        return comm.allreduce(np.ones(count), Op.create(lambda a, b: np.add(a, b, out=b))).sum()

    assert threads.run(3, program) == [3.0 * count] * 3


def test_names_of_ops():
    assert [as_op(name) for name in ("sum", "MAX", "band", "prod", "Average", "lxor", "minloc")] == [
        Op.Sum, Op.Max, Op.BAND, Op.Product, Op.Average, Op.LXOR, Op.MINLOC
    ]  # fmt: skip
    assert [int(op) for op in (Op.Average, Op.Sum, Op.Adasum, Op.Min, Op.Max, Op.Product)] == list(range(6))
    assert as_op(1) is Op.Sum
    for wrong in ("plus", 99, None, object()):
        with pytest.raises(ValueError, match="unknown reduction"):
            as_op(wrong)
    assert threads.run(2, lambda comm: comm.allreduce(np.full(2, comm.rank + 1), "prod").tolist()) == [[2, 2]] * 2


def test_scalars():
    def program(comm):
        assert comm.allreduce(2.5) == 2.5 * comm.size and comm.allreduce(np.int8(3), "bxor") == 3 * (comm.size % 2)
        assert comm.allreduce(comm.rank == 1, Op.LOR) and comm.allreduce(1j, "prod") == 1j**comm.size
        assert comm.allgather(comm.rank).tolist() == list(range(comm.size))

    threads.run(3, program)


@pytest.mark.parametrize("size", [1, 3])
def test_ops_that_make_no_sense_are_refused_before_anything_moves(size):
    wrong = [("f4", "band", "uint64"), ("c8", "max", "ops for complex64: .*Sum"), ("i4", "minloc", r"\(int32, int32\)")]
    wrong += [("f8", "land", "bool"), (PAIRS[0], "sum", "MINLOC, MAXLOC"), ("V3", "sum", "float16")]

    def program(comm):
        comm.allreduce(np.ones(4, "f4"))  # the call cache stores calls of this dtype
        for dtype, op, works in wrong:
            for call in (comm.allreduce, comm.iallreduce, comm.reducescatter):
                with pytest.raises(TypeError, match=works):
                    call(np.zeros(4, dtype), op=op)
        for op in (Op.BAND, Op.LXOR):
            comm.allreduce(np.ones(4, "i4"), op)
            with pytest.raises(ValueError, match="factor"):
                comm.allreduce(np.ones(4, "i4"), op, prescale_factor=2.0)
        return comm.allreduce(np.ones(4, "f4")).tolist()

    assert threads.run(size, program) == [[size] * 4] * size


def test_the_table_is_what_the_kernels_have():
    for index, name in enumerate(_core.DTYPES):
        has = {op for op in Op if _core.reduces(index, op)}
        if name in NUMBERS:
            integer = "int" in name or name == "bool"
            assert has == {op for op in Op if op.scaled and op != Op.Adasum} | (set(BITS | LOGIC) if integer else set())
        else:
            assert has == (set(LOCATED) if name.startswith("(") else {Op.Average, Op.Sum, Op.Product})


def as_mpi_does():
    """Compares results on MPI's ranks with mpi4py's Allreduce for the same op and dtype."""
    from mpi4py import MPI

    ringcomm.init()
    world = MPI.COMM_WORLD
    comm = ringcomm.Communicator()
    cases = [(dtype, op) for dtype in INTEGERS for op in ("SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND")]
    cases += [(dtype, op) for dtype in INTEGERS for op in ("LOR", "LXOR")]
    cases += [(dtype, op) for dtype in COMPLEX for op in ("SUM", "PROD")]
    cases += [(np.dtype(bool), op) for op in ("LAND", "LOR", "LXOR")]
    for dtype, name in cases:
        op = getattr(MPI, name)
        for count in (1, 1001):
            x = numbers(dtype, count, comm.rank, 5)
            want = np.empty_like(x)
            world.Allreduce(x, want, op)
            if name in ("LAND", "LOR", "LXOR") and comm.size == 1:
                want = (want != 0).astype(dtype)  # if nothing is combined, MPI does not convert numbers to 0 and 1
            got = comm.allreduce(x, op)
            assert np.array_equal(got, want), (dtype, name)
            assert np.array_equal(ringcomm.allreduce(x, op=op), want), (dtype, name)
    kinds = {"FLOAT_INT": ("f4", "i4"), "DOUBLE_INT": ("f8", "i4"), "LONG_INT": ("i8", "i4"), "TWOINT": ("i4", "i4")}
    for datatype, (value, index) in (kinds | {"SHORT_INT": ("i2", "i4")}).items():
        dtype = np.dtype([("value", value), ("index", index)], align=True)
        for op in (MPI.MINLOC, MPI.MAXLOC):
            x = numbers(dtype, 257, comm.rank, 6)
            want = np.empty_like(x)
            world.Allreduce([x, 257, getattr(MPI, datatype)], [want, 257, getattr(MPI, datatype)], op)
            got = comm.allreduce(x, op)
            assert np.array_equal(got["value"], want["value"]) and np.array_equal(got["index"], want["index"])
    # an op that returns the second operand
    later = MPI.Op.Create(lambda invec, inoutvec, datatype: None, commute=False)
    last = comm.allreduce(np.full(3, float(comm.rank)), later)
    assert last.tolist() == [comm.size - 1.0] * 3
    later.Free()
    comm.close()
    mpi_case.say("fine", comm.rank)


@pytest.mark.parametrize("size", [1, 3])
def test_as_mpi_does(size):
    assert len(mpi_case.run(size, as_mpi_does).lines("fine")) == size
