"""Process sets over MPI: made at init and later, overlapping, of one rank; and refusals."""

from __future__ import annotations

import mpi_case
import numpy as np
import pytest

import ringcomm
from ringcomm import ProcessSet
from ringcomm._src.named import runtime


def static():
    even, odd, last = ProcessSet([0, 2]), ProcessSet([1]), ProcessSet([2, 1])
    ringcomm.init(process_sets=[even, odd, last])
    rank = ringcomm.rank()
    assert [s.process_set_id for s in (ringcomm.global_process_set, even, odd, last)] == [0, 1, 2, 3]
    assert last.ranks == [1, 2] and even.size() == 2 and ringcomm.global_process_set.ranks == [0, 1, 2]
    for one in (even, odd, last, ringcomm.global_process_set):
        assert one.included() == (rank in one.ranks)
        if one.included():
            assert one.ranks[one.rank()] == rank
    handles = [
        (one, ringcomm.allreduce_async(np.array([rank + 1.0]), op=ringcomm.Sum, name="x", process_set=one))
        for one in (ringcomm.global_process_set, last, even, odd)
        if one.included()
    ]
    for one, handle in handles:
        assert handle.wait().tolist() == [sum(r + 1.0 for r in one.ranks)]
    for one in (even, last):
        if one.included():
            check(one, rank)
    refuse(even, rank)


def check(one, rank):
    root = one.ranks[-1]
    assert ringcomm.broadcast(np.array([rank]), root, process_set=one).tolist() == [root]
    assert ringcomm.allgather(np.array([rank]), process_set=one).tolist() == one.ranks
    assert ringcomm.alltoall(np.full(2, rank), process_set=one).tolist() == one.ranks
    assert ringcomm.reducescatter(np.full(2, rank), op=ringcomm.Max, process_set=one).tolist() == [root]
    assert ringcomm.allreduce(np.array([float(rank)]), process_set=one).tolist() == [sum(one.ranks) / 2]
    ringcomm.barrier(one)


def refuse(even, rank):
    if not even.included():
        for call in (
            even.rank,
            lambda: ringcomm.allreduce(np.ones(1), process_set=even),
            lambda: ringcomm.barrier(even),
        ):
            try:
                call()
            except ValueError as error:
                assert "not in process set 1" in str(error)
            else:
                raise AssertionError
    else:
        try:
            ringcomm.broadcast(np.ones(1), 1, process_set=even)
        except ValueError as error:
            assert "root rank 1" in str(error)
        else:
            raise AssertionError


@pytest.mark.parametrize("variables", [{}, {"RINGCOMM_SHARED_MEMORY": "off"}])
def test_sets_from_the_start(variables):
    mpi_case.run(3, static, variables=variables)


def dynamic(turns):
    from mpi4py import MPI

    ringcomm.init(MPI.COMM_WORLD, process_sets="dynamic")
    rank, size = ringcomm.rank(), ringcomm.size()
    for turn in range(turns):
        one = ringcomm.add_process_set([turn % size, (turn + 1) % size])
        half = ringcomm.add_process_set(ProcessSet([r for r in range(size) if r % 2 == 0] + ([1] if turn % 2 else [])))
        for each in (one, half):
            if each.included():
                total = ringcomm.allreduce(np.array([rank]), op=ringcomm.Sum, name="t", process_set=each)
                assert total.tolist() == [sum(each.ranks)]
        assert ringcomm.remove_process_set(one) and not ringcomm.remove_process_set(one)
        assert ringcomm.remove_process_set(half)
        assert one.process_set_id is None
    assert ringcomm.global_process_set.mpi_comm is MPI.COMM_WORLD
    ringcomm.shutdown()
    assert ringcomm.global_process_set.mpi_comm is None
    ringcomm.init()
    halves = MPI.COMM_WORLD.Split(0, -rank)
    try:
        ringcomm.add_process_set(ProcessSet(halves))
    except ValueError as error:
        assert "already" in str(error)
    else:
        raise AssertionError
    assert not ringcomm.remove_process_set(ringcomm.global_process_set)


def test_sets_come_and_go():
    mpi_case.run(4, dynamic, 12)


def wrong():
    good = ProcessSet([0])
    for sets in ([good, [1, 2], [0]], [good, [0, 1, 2]], [good, [7]]):
        with pytest.raises(ValueError, match="process set"):
            ringcomm.init(process_sets=sets)
        assert good.process_set_id is None and ringcomm.is_initialized()
    ringcomm.init(process_sets=[good])
    ringcomm.init(process_sets=[[0, 1]])
    assert good.process_set_id == 1 and len(runtime.session().sets) == 2
    rank = ringcomm.rank()
    try:
        ringcomm.add_process_set([0] if rank else [0, 1])
    except ringcomm.MismatchError as error:
        assert "rank 0 passed [0, 1]" in str(error) and "rank 1 passed [0]" in str(error)
    else:
        raise AssertionError
    for ranks in ([], [0, 7], [-1]):
        try:
            ringcomm.add_process_set(ranks)
        except ValueError:
            pass
        else:
            raise AssertionError(ranks)
    good = ringcomm.add_process_set([1])
    if rank == 1:
        assert ringcomm.allreduce(np.ones(1), process_set=good).tolist() == [1]


def test_what_is_refused():
    mpi_case.run(3, wrong)
