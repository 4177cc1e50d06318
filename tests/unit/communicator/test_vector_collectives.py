"""MPI's further collectives, compared with NumPy on threads and with mpi4py under MPI."""

from __future__ import annotations

import itertools

import mpi_case
import numpy as np
import pytest
from drawn_calls import CONFIGS, MOVED, both, configs, random_bytes, rows_of_ranks, same, seeds, sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import integers

import ringcomm
from ringcomm import threads
from ringcomm._src.base.errors import MismatchError
from ringcomm._src.base.ops import Op
from ringcomm._src.platform import bootstrap


@given(sizes, configs, st.sampled_from(MOVED), rows_of_ranks, st.sampled_from([(), (3,), (2, 0)]), seeds, st.data())
@settings(max_examples=80, deadline=None)
def test_gather_and_scatter(size, config, dtype, rows, tail, seed, data):
    rows, root = rows[:size], data.draw(st.integers(0, size - 1))
    inputs = [random_bytes(dtype, (rows[rank], *tail), seed, rank) for rank in range(size)]
    alike = [random_bytes(dtype, (rows[0], *tail), seed, rank, 1) for rank in range(size)]
    everything = np.concatenate(inputs)

    def program(comm):
        mine, here = inputs[comm.rank], comm.rank == root
        gathered = comm.gatherv(mine, root=root), both(comm, "gatherv", mine, rows, root)
        gathered += (comm.gather(alike[comm.rank], root), comm.igather(alike[comm.rank], root).wait())
        assert all((one is not None) == here for one in gathered)
        if here:
            assert same(gathered[0], everything) and same(gathered[1], everything)
            assert same(gathered[2], np.concatenate(alike)) and same(gathered[3], np.concatenate(alike))
        like = everything if here else np.empty((0, *tail), dtype)
        assert same(both(comm, "scatterv", like, rows, root), mine)
        out = np.empty_like(mine)
        assert comm.scatterv(everything if here else None, rows, root, out=out) is out and same(out, mine)
        whole = np.concatenate(alike)
        assert same(both(comm, "scatter", whole if here else np.empty_like(whole), root), alike[comm.rank])
        out = np.empty_like(alike[0])[::-1]
        assert comm.scatter(whole if here else None, root, out) is out and same(out.copy(), alike[comm.rank])
        assert same(comm.allgatherv(mine), everything) and same(both(comm, "allgatherv", mine, rows), everything)

    threads.run(size, program, config=config)


@given(sizes, configs, st.sampled_from(MOVED), seeds, st.data())
@settings(max_examples=40, deadline=None)
def test_alltoallv(size, config, dtype, seed, data):
    counts = np.random.default_rng(seed).integers(0, 4, (size, size)) * data.draw(st.sampled_from([1, 100]))
    inputs = [random_bytes(dtype, (counts[rank].sum(), 2), seed, rank) for rank in range(size)]

    def program(comm):
        sent, received = counts[comm.rank], counts[:, comm.rank]
        parts = [np.split(x, np.cumsum(counts[rank])[:-1])[comm.rank] for rank, x in enumerate(inputs)]
        assert same(comm.alltoallv(inputs[comm.rank], sent), np.concatenate(parts))
        assert same(both(comm, "alltoallv", inputs[comm.rank], sent, received), np.concatenate(parts))
        with pytest.raises(ValueError, match="need recvcounts"):
            comm.ialltoallv(inputs[comm.rank], sent)

    threads.run(size, program, config=config)


@given(
    sizes, configs, st.lists(st.integers(0, 8), min_size=1, max_size=12), st.sampled_from([(), (1,), (40, 3)]), seeds
)
@settings(max_examples=40, deadline=None)
def test_calls_that_come_again(size, config, roots, shape, seed):
    """Repeated calls hit the call cache for every root, and return the first calls' results."""

    def program(comm):
        me = comm.rank
        for turn, root in enumerate(root % size for root in roots):
            inputs = [
                integers(np.dtype("i4"), 120, rank, Op.Sum, seed + turn)[: int(np.prod(shape))] for rank in range(size)
            ]
            inputs = [x.reshape(shape) for x in inputs]
            whole = np.concatenate([np.atleast_1d(x) for x in inputs])
            gathered = comm.gather(inputs[me], root)
            assert (gathered is None) == (me != root) and (me != root or same(gathered, whole))
            mine, out = np.atleast_1d(inputs[me]), np.empty_like(np.atleast_1d(inputs[me]))
            assert same(comm.scatter(whole if me == root else np.zeros_like(whole), root), mine)
            assert comm.scatter(whole if me == root else None, root, out) is out and same(out, mine)
            assert same(comm.alltoall(whole), np.concatenate([mine] * size))
            want = list(itertools.accumulate(inputs, np.add))
            assert np.array_equal(comm.scan(inputs[me], out=np.empty_like(inputs[me])), want[me])
            before = comm.exscan(inputs[me])
            assert before is None if me == 0 else np.array_equal(before, want[me - 1])
            assert np.array_equal(comm.scan(inputs[me], Op.Max), list(itertools.accumulate(inputs, np.maximum))[me])

    threads.run(size, program, config=config)


@pytest.mark.parametrize("config", CONFIGS)
def test_ranks_that_disagree_are_told_so(config):
    x = np.zeros((6, 2), np.float32)

    def program(comm):
        me = comm.rank
        wrong = [
            lambda: comm.gather(x[: me + 1]),
            lambda: comm.gather(x, root=int(me == 1)),
            lambda: comm.gather(x) if me else comm.scatter(x),
            lambda: comm.gatherv(x[:me], [0, 1, 2] if me else [0, 1, 3]),
            lambda: comm.gatherv(x if me else x.astype("f8")),
            lambda: comm.scatterv(x, [1, 2, 3] if me else [3, 2, 1]),
            lambda: comm.scatter(x, out=None) if me else comm.scatter(x[:3]),
            lambda: comm.scan(x) if me else comm.exscan(x),
            lambda: comm.scan(x, "max" if me else "sum"),
            lambda: comm.scan(x[:me]),
            lambda: comm.reduce_scatter(x, [1, 2, 3] if me else [3, 2, 1]),
        ]
        for call in wrong:
            with pytest.raises(MismatchError, match="rank"):
                call()
        return comm.gather(np.float64(me), 1) is not None

    assert threads.run(3, program, config=config) == [False, True, False]


def test_what_cannot_be_is_refused():
    x = np.zeros((4, 2), np.float32)

    def program(comm):
        wrong = [
            (lambda: comm.gather(x, 2), "root 2 is not a rank of this communicator of 2"),
            (lambda: comm.scatter(x, -1), "root -1"),
            (lambda: comm.gatherv(x, [1, 1]), "counts must have 2 entries, each rank's number of rows"),
            (lambda: comm.scatterv(x, [4, 0, 0]), "counts must be 2"),
            (lambda: comm.scatter(None), "the root must give x"),
            (lambda: comm.scatter(x[:3]), "use scatterv"),
            (lambda: comm.reduce_scatter(x, [1, 1]), "add up to the first dimension, 4"),
            (lambda: comm.scatter(x, out=np.zeros(7, np.float32)), "must be float32 of shape"),
            (lambda: comm.scan(x, "average"), "use Sum and divide"),
            (lambda: comm.scan(x, "adasum"), "Adasum works with allreduce only"),
            (lambda: comm.exscan(x, "band"), "BAND does not support float32"),
        ]
        for call, why in wrong:
            with pytest.raises((ValueError, TypeError), match=why):
                call()
        return comm.scan(1)

    assert threads.run(2, program) == [1, 2]


def test_torch_tensors():
    torch = pytest.importorskip("torch")

    def program(comm):
        x = torch.full((2, 2), comm.rank + 1, dtype=torch.bfloat16)
        assert comm.scan(x).equal(torch.full_like(x, sum(range(comm.rank + 2))))
        gathered = comm.gather(x)
        assert gathered is None if comm.rank else gathered.equal(torch.cat([x + rank for rank in range(comm.size)]))
        part = comm.scatter(gathered, out=torch.empty_like(x))
        assert part.equal(x)

    threads.run(3, program)


def as_mpi_does():
    """Compares with mpi4py on MPI's ranks, on one host and on simulated hosts of two ranks."""
    from mpi4py import MPI

    ringcomm.init()
    world = MPI.COMM_WORLD
    me, size = world.rank, world.size
    comms, of_one_host = [ringcomm.Communicator()], bootstrap.host_key
    try:
        bootstrap.host_key = lambda: (f"host{me // 2}",)
        comms.append(ringcomm.Communicator())
    finally:
        bootstrap.host_key = of_one_host
    cases = itertools.product(("i4", "c16"), (0, 5, 3000), {0, size - 1}, comms)
    for dtype, rows, root, comm in cases:
        counts = [rows + rank for rank in range(size)]
        mine = integers(np.dtype("i4"), counts[me], me, Op.Sum, rows).astype(dtype)
        spec = [np.empty(sum(counts), dtype), counts]
        world.Gatherv(mine, spec if me == root else None, root)
        got = comm.gatherv(mine, root=root)
        assert got is None if me != root else same(got, spec[0])
        world.Allgatherv(mine, spec)
        assert same(comm.allgatherv(mine), spec[0])
        part = np.empty_like(mine)
        world.Scatterv(spec if me == root else None, part, root)
        assert same(comm.scatterv(spec[0] if me == root else None, counts, root, out=np.empty_like(mine)), part)
        even = np.full((rows, 2), me, dtype)
        whole = np.empty((size * rows, 2), dtype)
        world.Gather(even, whole if me == root else None, root)
        got = comm.gather(even, root)
        assert got is None if me != root else same(got, whole)
        part = np.empty_like(even)
        world.Scatter(whole if me == root else None, part, root)
        assert same(comm.scatter(whole, root), part)
        sent, received = [(me + q) % 3 * rows for q in range(size)], [(me + q) % 3 * rows for q in range(size)]
        x, want = np.full(sum(sent), me, dtype), np.empty(sum(received), dtype)
        world.Alltoallv([x, sent], [want, received])
        assert same(comm.alltoallv(x, sent), want) and same(comm.alltoallv(x, sent, received), want)
        for op in (MPI.SUM, MPI.PROD) if dtype == "c16" else (MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX):
            x = np.resize(mine, rows)
            want = np.empty_like(x)
            world.Scan(x, want, op)
            assert np.array_equal(comm.scan(x, op), want)
            world.Exscan(x, want, op)
            got = comm.exscan(x, op)
            assert got is None if me == 0 else np.array_equal(got, want)
            x, want = np.resize(mine, sum(counts)), np.empty_like(mine)
            world.Reduce_scatter(x, want, counts, op)
            assert np.array_equal(comm.reduce_scatter(x, counts, op), want)
    for graph, comm in itertools.product(("ring", "exponential"), comms):
        near = comm.neighbours(graph)
        adjacent = world.Create_dist_graph_adjacent(near.receives_from, near.sends_to)
        x, want = np.full((5, 2), me, "f4"), np.empty((5 * len(near.receives_from), 2), "f4")
        adjacent.Neighbor_allgather(x, want)
        assert same(near.allgather(x), want)
        x = np.arange(10.0 * len(near.sends_to)).reshape(-1, 2) + 100 * me
        want = np.empty((5 * len(near.receives_from), 2))
        adjacent.Neighbor_alltoall(x, want)
        assert same(near.alltoall(x, 5), want)
        adjacent.Free()
    for comm in comms:
        comm.close()
    mpi_case.say("fine", me)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_as_mpi_does(size):
    assert len(mpi_case.run(size, as_mpi_does).lines("fine")) == size
