"""Exchanges over graphs, with ranks as threads."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_calls import MOVED, configs, random_bytes, same, seeds, sizes
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcomm import threads
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.communicator import neighbours


def graphs(size, seed):
    rng = np.random.default_rng(seed)
    yield from ["ring", "exponential", *(["hypercube"] if size & (size - 1) == 0 else [])]
    yield [rng.permutation(size)[: rng.integers(0, size + 1)].tolist() for _ in range(size)]


@given(sizes, configs, st.sampled_from(MOVED), st.sampled_from([0, 1, 300]), seeds)
@settings(max_examples=40, deadline=None)
def test_neighbours(size, config, dtype, rows, seed):
    def block(sender, receiver):
        return random_bytes(dtype, (rows, 2), seed, sender, receiver)

    def stacked(blocks):
        return np.concatenate([np.empty((0, 2), dtype), *blocks])

    def program(comm):
        me = comm.rank
        for graph in graphs(size, seed):
            near = comm.neighbours(graph)
            edges = neighbours.edges_of(graph, size)
            assert list(near.sends_to) == edges[me] == sorted(set(edges[me]))
            assert list(near.receives_from) == [rank for rank in range(size) if me in edges[rank]]
            want = stacked(block(rank, size) for rank in near.receives_from)
            out = np.empty_like(want)
            assert same(near.allgather(block(me, size)), want) and same(near.iallgather(block(me, size)).wait(), want)
            assert near.allgather(block(me, size), out) is out and same(out, want)
            x, want = (
                stacked(block(me, rank) for rank in near.sends_to),
                stacked(block(r, me) for r in near.receives_from),
            )
            assert same(near.alltoall(x, rows), want) and same(near.ialltoall(x, rows).wait(), want)

    threads.run(size, program, config=config)


def test_graphs_that_are_none():
    def program(comm):
        for wrong in ("star", "hypercube", [[1], [2]], [[1], [3], []], [[1, 1], [], []], [[-1], [], []]):
            with pytest.raises(ValueError, match="graph"):
                comm.neighbours(wrong)
        near = comm.neighbours("ring" if comm.rank else [[1], [2], [0]])
        with pytest.raises(MismatchError, match="neighbours"):
            near.allgather(np.ones(3))
        with pytest.raises(ValueError, match="needs 2 rows for each of 2 neighbours"):
            comm.neighbours("ring").alltoall(np.ones(5), 2)
        return comm.neighbours("ring").allgather(comm.rank).tolist()

    assert threads.run(3, program) == [[1, 2], [0, 2], [0, 1]]
