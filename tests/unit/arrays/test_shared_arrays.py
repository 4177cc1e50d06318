"""NumPy arrays whose memory ringcomm allocates in shared memory."""

from __future__ import annotations

import copy
import gc
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads

BIG = 1 << 17  # elements; arrays of this size are allocated in the arena
SHARED, PRIVATE = ringcomm.Config(shared_memory="on"), ringcomm.Config(shared_memory="off")


def lies_shared(comm, x: np.ndarray) -> bool:
    return comm._node is not None and comm._node.offset_of(x.ctypes.data, x.nbytes) is not None


def first(program, config=SHARED):
    return threads.run(2, program, config=config)[0]


def test_only_big_ones_and_only_inside():
    def program(comm):
        before = np.ones(BIG)
        with comm.shared_arrays():
            inside, small, derived = np.ones(BIG), np.ones(10), before * 2
        after = np.ones(BIG)
        return [lies_shared(comm, x) for x in (before, inside, small, derived, after)]

    assert first(program) == [False, True, False, True, False]
    assert first(program, PRIVATE) == [False] * 5


@given(st.integers(2, 5), st.sampled_from(["float32", "int64", "uint8"]), st.integers(1, 5))
def test_results_are_those_of_ordinary_arrays(size, dtype, scale):
    def program(comm):
        with comm.shared_arrays():
            x = (np.arange(BIG) % 7).astype(dtype) * (comm.rank + scale)
        ordinary = x.copy()
        assert lies_shared(comm, x)
        assert not lies_shared(comm, ordinary)
        comm.allreduce(x, ringcomm.Sum, x)
        np.testing.assert_array_equal(x, comm.allreduce(ordinary, ringcomm.Sum))

    threads.run(size, program, config=SHARED)


def test_shapes_are_those_that_numpy_accepts():
    def program(comm):
        for shape in (-1, (2, -3), (-2, -3)):
            with pytest.raises(ValueError):
                comm.empty(shape)
        with pytest.raises(TypeError):
            comm.empty(2.5)
        return [comm.empty(shape).shape for shape in (5, np.int64(5), [3, 2], (0, 4), ())]

    assert first(program) == [(5,), (5,), (3, 2), (0, 4), ()]


def test_what_numpy_does_with_memory():
    def program(comm):
        with comm.shared_arrays():
            zeros = np.zeros(BIG)
            zeros += 1
            del zeros
            assert not np.zeros(BIG).any()  # reuses the memory
            grown = np.ones(BIG)
            grown.resize(3 * BIG, refcheck=False)
            assert grown[:BIG].all()
            assert not grown[BIG:].any()
            grown.resize(10, refcheck=False)
            assert grown.tolist() == [1.0] * 10
            filled = np.fromiter(range(BIG), float)
            assert lies_shared(comm, filled)
        for twin in (pickle.loads(pickle.dumps(filled)), copy.deepcopy(filled)):
            np.testing.assert_array_equal(twin, filled)

    first(program)


def test_arrays_outlive_their_communicator():
    def program(comm):
        with comm.shared_arrays():
            return np.full(BIG, 3.0)

    kept = threads.run(3, program, config=SHARED)
    gc.collect()
    assert all((x == 3).all() for x in kept)


def test_nested_and_after_an_error():
    def program(comm):
        with comm.shared_arrays(), comm.shared_arrays():
            pass
        with pytest.raises(ZeroDivisionError), comm.shared_arrays():
            raise ZeroDivisionError
        return lies_shared(comm, np.ones(BIG))

    assert not first(program)


def test_more_than_there_is_is_ordinary_memory():
    def program(comm):
        with comm.shared_arrays():
            # the arena of a rank that is a thread has 8 GB of address space
            return lies_shared(comm, np.empty(9 << 30, np.uint8))

    assert not first(program)


def test_a_forked_child_has_its_own():
    def program(comm):
        with comm.shared_arrays():
            x = np.ones(BIG)
        child = os.fork()
        if child == 0:
            good = x.all()
            x[:] = 2
            del x
            with comm.shared_arrays():
                good = good and np.zeros(BIG).sum() == 0
            os._exit(0 if good else 1)
        _, status = os.waitpid(child, 0)
        return status == 0 and bool((x == 1).all())

    assert first(program)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_what_is_only_moved_is_read_where_it_lies(size):
    """Moves data without staging, regardless of which ranks' arrays are shared.

    The first large call detects which memory is readable.
    """

    def program(comm):
        draw = np.random.default_rng(size)  # identical on all ranks
        for turn in range(8):
            rows = [int(n) for n in draw.choice([0, 3, 4000, 60_000], size)]
            shared = draw.random(size) < draw.choice([0, 0.5, 1])
            given = [np.arange(count * size, dtype=np.float64) * (rank + 1) + turn for rank, count in enumerate(rows)]
            mine = (
                comm.empty(rows[comm.rank] * size, "float64") if shared[comm.rank] else np.empty(rows[comm.rank] * size)
            )
            mine[:] = given[comm.rank]
            for _ in range(2):
                np.testing.assert_array_equal(comm.allgather(mine), np.concatenate(given))
                parts = [np.split(array, size)[comm.rank] for array in given]
                np.testing.assert_array_equal(comm.alltoall(mine), np.concatenate(parts))
                # all rows go to the last rank
                splits = [rows[comm.rank] * size if q == comm.size - 1 else 0 for q in range(size)]
                got, received = comm.alltoall(mine, splits)
                np.testing.assert_array_equal(got, np.concatenate(given) if comm.rank == size - 1 else [])
                assert list(received) == [n * size if comm.rank == size - 1 else 0 for n in rows]
                out = np.empty(60_000) if comm.rank else comm.empty(60_000, "float64")
                out[:] = np.arange(60_000.0) * (comm.rank + turn)
                np.testing.assert_array_equal(
                    comm.broadcast(out, turn % size), np.arange(60_000.0) * (turn % size + turn)
                )
            np.testing.assert_array_equal(mine, given[comm.rank])
        return True

    assert threads.run(size, program, config=SHARED) == [True] * size
