"""Join: until all ranks have joined, the other ranks get the results of a smaller job."""

from __future__ import annotations

import os
import signal
import threading
import time

import mpi_case
import numpy as np
import pytest
from reference import DTYPES, integers

import ringcomm
from ringcomm import Average, Max, Min, ProcessSet, Product, Sum

ROWS = 5
FLOAT = np.dtype(np.float32)


# ---- values ----------------------------------------------------------------------------------------------------------
def reduced(op, inputs, size):
    """Returns the reduction of the inputs of ranks that contributed, in a set of `size` ranks."""
    dtype = inputs[0].dtype
    if dtype.kind == "b":
        return (np.logical_or if op in (Sum, Average, Max) else np.logical_and).reduce(inputs)
    wide = [one.astype(np.int64 if dtype.kind in "iu" else np.float64) for one in inputs]
    ufunc = {Min: np.minimum, Max: np.maximum, Product: np.multiply}.get(op, np.add)
    result = ufunc.reduce(wide)
    if op == Average:
        result = np.sign(result) * (np.abs(result) // size) if dtype.kind in "iu" else result / size
    return result.astype(dtype)


class Step:
    """One step of a rank with data: every operation, in a different order on each rank."""

    def __init__(self, process_set, active, number, seed):
        self.set, self.active, self.number = process_set, active, number
        self.rank = ringcomm.rank()
        self.random = np.random.default_rng((seed, number, self.rank))
        self.tag = f"{process_set.process_set_id}"

    def data(self, rank, dtype=FLOAT, op=Sum):
        return integers(dtype, ROWS * 3, rank, op, self.number).reshape(ROWS, 3)

    def all_data(self, dtype=FLOAT, op=Sum):
        return [self.data(rank, dtype, op) for rank in self.active]

    def jobs(self):
        dtypes = [DTYPES[(self.number + k) % len(DTYPES)] for k in range(3)]
        for dtype in dtypes:
            for op in (Sum, Average, Min, Max, Product):
                yield self.allreduce, dtype, op
        yield self.grouped, None, None
        yield self.gather, None, None
        yield self.scatter, None, (Sum, Min, Max, Product, Average)[self.number % 5]
        yield self.swap, None, None
        for root in self.set.ranks:
            yield self.broadcast, None, root

    def run(self):
        order = list(self.jobs())
        self.random.shuffle(order)
        checks = [job(dtype, what) for job, dtype, what in order]
        ringcomm.barrier(self.set)
        for check in checks:
            check()
        nameless = ringcomm.allreduce(np.full(2, self.rank), op=Sum, process_set=self.set)
        assert nameless.tolist() == [sum(self.active)] * 2

    def allreduce(self, dtype, op):
        mine = self.data(self.rank, dtype, op)
        handle = ringcomm.allreduce_async(mine, op=op, name=f"{self.tag}.{dtype}.{op}", process_set=self.set)

        def check():
            expected = reduced(op, self.all_data(dtype, op), self.set.size())
            got, rtol = handle.wait().astype(np.float64), 2e-2 if dtype.name == "bfloat16" else 2e-3
            np.testing.assert_allclose(got, expected.astype(np.float64), rtol=rtol)

        return check

    def grouped(self, _, __):
        two = [self.data(self.rank), self.data(self.rank)[:1]]
        handle = ringcomm.grouped_allreduce_async(two, op=Sum, name=f"{self.tag}.group", process_set=self.set)

        def check():
            expected = sum(self.all_data())
            whole, first = handle.wait()
            np.testing.assert_array_equal(whole, expected)
            np.testing.assert_array_equal(first, expected[:1])

        return check

    def gather(self, _, __):
        part = self.data(self.rank)[: self.rank + 1]
        handle = ringcomm.allgather_async(part, name=f"{self.tag}.gather", process_set=self.set)

        def check():
            expected = [self.data(rank)[: rank + 1] for rank in self.active]
            np.testing.assert_array_equal(handle.wait(), np.concatenate(expected))

        return check

    def scatter(self, _, op):
        handle = ringcomm.reducescatter_async(
            self.data(self.rank, op=op), op=op, name=f"{self.tag}.scatter", process_set=self.set
        )

        def check():
            whole = reduced(op, self.all_data(op=op), self.set.size())
            mine = np.array_split(whole, self.set.size())[self.set.rank()]
            np.testing.assert_allclose(handle.wait(), mine, rtol=1e-6)

        return check

    def swap(self, _, __):
        def splits(rank):
            return [(rank + to + self.number) % 3 for to in self.set.ranks]

        def rows(rank):
            return np.repeat(np.full((1, 2), rank), sum(splits(rank)), axis=0)

        handle = ringcomm.alltoall_async(rows(self.rank), splits(self.rank), f"{self.tag}.swap", self.set)

        def check():
            got, received = handle.wait()
            mine = self.set.rank()
            counts = [splits(rank)[mine] if rank in self.active else 0 for rank in self.set.ranks]
            assert received.tolist() == counts
            assert got[:, 0].tolist() == [r for r, n in zip(self.set.ranks, counts, strict=True) for _ in range(n)]

        return check

    def broadcast(self, _, root):
        handle = ringcomm.broadcast_async(self.data(self.rank), root, f"{self.tag}.root{root}", self.set)

        def check():
            if root in self.active:
                np.testing.assert_array_equal(handle.wait(), self.data(root))
                return
            with pytest.raises(ringcomm.RankJoinedError, match=f"rank {root}, has joined") as error:
                handle.wait()
            assert error.value.ranks == (root,) and isinstance(error.value, ringcomm.HorovodInternalError)

        return check


def epochs(seed, level):
    if level:
        import mpi4py

        mpi4py.rc.thread_level = level
    part = ProcessSet([0, 2])
    ringcomm.init(process_sets=[part] if size_is(3) else None)
    rank, size = ringcomm.rank(), ringcomm.size()
    random = np.random.default_rng(seed)  # identical on every rank
    for epoch in range(4):
        steps = random.integers(0, 4, size)
        for number in range(steps[rank]):
            for one in (part, ringcomm.global_process_set):
                if one.process_set_id is not None and one.included():
                    Step(one, [r for r in one.ranks if steps[r] > number], number, epoch).run()
        last = ringcomm.join()
        assert steps[last] == max(steps)
        assert len(set(ringcomm.allgather(np.array([last])).tolist())) == 1  # all ranks return the same last rank
        Step(ringcomm.global_process_set, list(range(size)), 1, epoch).run()


def size_is(least):
    from mpi4py import MPI

    return MPI.COMM_WORLD.size >= least


@pytest.mark.parametrize(
    ("size", "level", "variables"),
    [
        (1, "", {}),
        (2, "", {}),
        (3, "", {}),
        (3, "", {"RINGCOMM_SHARED_MEMORY": "off", "RINGCOMM_ALGORITHM": "butterfly_halving"}),
        (4, "", {"RINGCOMM_FUSION_BYTES": "0", "RINGCOMM_CACHE_CAPACITY": "3"}),
        (3, "serialized", {"RINGCOMM_SHARED_MEMORY": "off"}),
    ],
)
def test_unequal_steps(size, level, variables):
    mpi_case.run(size, epochs, size, level, variables=variables, alone=bool(level))


# ---- costs and refusals ----------------------------------------------------------------------------------------------
def waiting():
    """A rank that waits in join sleeps, but still takes part in operations, also in large ones."""
    ringcomm.init()
    if ringcomm.rank() == 0:
        begun = time.process_time()
        assert ringcomm.join() == 1
        used = time.process_time() - begun
        assert used < 1, used  # the wait takes two seconds
    else:
        time.sleep(1)
        big = np.full(1 << 20, 3.0, np.float32)
        assert (ringcomm.allreduce(big) == 1.5).all()
        time.sleep(1)
        assert ringcomm.join() == 1


def test_waiting_is_cheap():
    mpi_case.run(2, waiting)


def refusals():
    ringcomm.init()
    rank, both = ringcomm.rank(), [0, 1]
    for _ in range(2):
        if rank == 2:
            seen = []

            def meanwhile(seen=seen):
                time.sleep(0.2)
                for call in (lambda: ringcomm.allreduce(np.ones(1)), ringcomm.join):
                    try:
                        call()
                    except ValueError as error:
                        seen.append("this rank has joined" in str(error))

            thread = threading.Thread(target=meanwhile)
            thread.start()
            ringcomm.join()
            thread.join()
            assert seen == [True, True]
        else:
            # the numbers of operations without names restart after the join
            assert ringcomm.allreduce(np.ones(1), op=Sum).tolist() == [2]
            with pytest.raises(ringcomm.RankJoinedError, match="have joined") as error:
                ringcomm.add_process_set(both)
            assert error.value.ranks == (2,)
            time.sleep(0.5)
            ringcomm.join()
        assert ringcomm.allreduce(np.ones(1), op=Sum).tolist() == [3]
    part = ringcomm.add_process_set(both)
    if rank in both:  # a separate join of this set; operations of the world wait for these ranks as usual
        if rank == 0:
            assert ringcomm.allreduce(np.ones(1), op=Sum, process_set=part).tolist() == [1]
        assert ringcomm.join(process_set=part) == 0
        assert ringcomm.allreduce(np.ones(1), op=Sum, process_set=part).tolist() == [2]
    else:
        with pytest.raises(ValueError, match="not in process set"):
            ringcomm.join(process_set=part)
    assert ringcomm.allreduce(np.ones(1), op=Sum).tolist() == [3]
    assert ringcomm.remove_process_set(part)


def test_what_is_refused_while_a_rank_has_joined():
    mpi_case.run(3, refusals)


def test_before_init():
    with pytest.raises(ValueError, match="has not been initialized"):
        ringcomm.join()


# ---- ends ------------------------------------------------------------------------------------------------------------
def one_leaves():
    """Rank 2 shuts down instead of joining; rank 1 has joined, rank 0 works."""
    ringcomm.init()
    rank = ringcomm.rank()
    ringcomm.barrier()
    if rank == 2:
        ringcomm.shutdown()
        return
    with pytest.raises(ringcomm.RankLeftError) as error:
        ringcomm.join() if rank else ringcomm.allreduce(np.ones(3), name="x")
    assert error.value.ranks == (2,)
    mpi_case.say("told", rank)


def test_a_rank_leaves_instead_of_joining():
    assert len(mpi_case.run(3, one_leaves).lines("told")) == 2


def stalled():
    """Rank 1 has joined, rank 2 does nothing: the other ranks name rank 2, and later calls succeed."""
    ringcomm.init()
    rank = ringcomm.rank()
    if rank == 0:
        with pytest.raises(ringcomm.RankLeftError) as error:
            ringcomm.allreduce(np.ones(3), name="x")
        assert error.value.ranks == (2,)
        ringcomm.join()
    elif rank == 1:
        ringcomm.join()
    else:
        time.sleep(2.5)
        ringcomm.join()
    assert ringcomm.allreduce(np.ones(3), name="x", op=Sum).tolist() == [3, 3, 3]


def test_a_stall_names_those_who_have_not_joined():
    variables = {"RINGCOMM_STALL_FAIL_SECONDS": "1", "RINGCOMM_STALL_WARN_SECONDS": "0.5"}
    result = mpi_case.run(3, stalled, variables=variables)
    assert "submitted by rank 0, not by rank 2\n" in result.text and "'join'" not in result.text, result.text


def joined_rank_dies():
    ringcomm.init()
    if ringcomm.rank() == 1:
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGKILL]).start()
        ringcomm.join()
    while True:
        ringcomm.allreduce(np.ones(1000, np.float32), name="x")


@pytest.mark.parametrize("memory", ["on", "off"])
def test_a_joined_rank_dies(memory):
    result = mpi_case.start(3, joined_rank_dies, limit=60, variables={"RINGCOMM_SHARED_MEMORY": memory})
    assert result.status != 0 and not result.left_behind
