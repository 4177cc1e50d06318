"""Persistent calls, which are prepared once and started many times, with ranks as threads."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_calls import configs, seeds, sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import integers

from ringcomm import threads
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.base.ops import Op


def persistent_calls(size, root):
    """Yields the name, further arguments, and the array's rows as multiple of a rank's."""
    counts = [2] * size
    yield from [("allreduce", (), 1), ("reduce", (root, "max"), 1), ("broadcast", (root,), 1), ("allgather", (), 1)]
    yield from [("reducescatter", (), size), ("reduce_scatter", (counts, "min"), size), ("alltoall", (), size)]
    yield from [("alltoallv", (counts, counts), size), ("gather", (root,), 1), ("gatherv", (counts, root), 1)]
    yield from [("scatter", (root,), size), ("scatterv", (counts, root), size), ("scan", (), 1), ("exscan", (), 1)]
    yield from [("allgatherv", (counts,), 1), ("scan", (Op.create(lambda a, b: np.add(a, b, out=b)),), 1)]


@given(sizes, configs, seeds, st.data())
@settings(max_examples=20, deadline=None)
def test_prepared_calls_read_their_arrays_at_every_start(size, config, seed, data):
    root = data.draw(st.integers(0, size - 1))

    def program(comm):
        for name, arguments, parts in persistent_calls(size, root):
            x = np.zeros((2 * parts, 30), np.float32)
            plan, before = getattr(comm, f"{name}_init")(x, *arguments), None
            with pytest.raises(ValueError, match="not been started"):
                plan.wait()
            for turn in range(3):
                x[:] = integers(x.dtype, x.size, comm.rank, Op.Sum, seed + turn).reshape(x.shape)
                want = getattr(comm, name)(x, *arguments)
                plan.start()
                with pytest.raises(ValueError, match="in progress"):
                    plan.start()
                got = plan.wait()
                assert (got is None and want is None) or np.array_equal(got, want), name
                assert before is None or got is before
                before = got
        plan = comm.barrier_init()
        assert [plan.start().wait() for _ in range(2)] == [None, None]

    threads.run(size, program, config=config)


def test_prepared_calls_that_fail():
    def program(comm):
        for wrong in ([1.0, 2.0], 3, np.ones((4, 4))[:, 1]):
            with pytest.raises(ValueError, match="contiguous"):
                comm.allreduce_init(wrong)
        plan = comm.allreduce_init(np.ones(2 + comm.rank, np.float32))
        for _ in range(2):
            with pytest.raises(MismatchError, match="shape"):
                plan.start().wait()
        with pytest.raises(ValueError, match="need recvcounts"):
            comm.alltoallv_init(np.ones(2), [1, 1])
        return comm.allreduce(1)

    assert threads.run(2, program) == [2, 2]
