"""A million mixed collectives: a rank's memory, descriptors and shared memory stop growing."""

from __future__ import annotations

import ast
import os
import random
import re

import mpi_case
import numpy as np
import psutil
import pytest

CALLS, SETTLED = 1_000_000, 10_000
MEBIBYTE = 1 << 20


def mixed(calls, settled):
    import ringcomm
    from ringcomm import Average, Max, Sum

    ringcomm.init()
    comm = ringcomm.communicator()
    size, rank = comm.size, comm.rank
    rng = random.Random(7)  # identical on every rank
    arrays = {n: np.ones(n, np.float32) for n in (1, 3, 100, 257, 1000, 5000, 40_000)}
    shared = {n: comm.empty(n) for n in (1000, 40_000)}

    def ordered_sum(n):
        assert comm.allreduce(arrays[n], Sum)[-1] == size

    def shared_average(n):
        shared[n].fill(rank)
        assert comm.allreduce(shared[n], Average, shared[n])[0] == (size - 1) / 2

    def by_messages(n):
        assert comm.allreduce(arrays[n], Max, algorithm=rng.choice(["ring", "tree", "butterfly_halving"]))[0] == 1

    def moves(n):
        assert comm.broadcast(np.full(n, rank), n % size)[0] == n % size
        assert len(comm.allgather(arrays[n], [n] * size)) == n * size
        assert comm.reducescatter(np.ones(n * size)).size == n
        assert comm.alltoall(np.arange(size), [1] * size)[0].tolist() == [rank] * size
        comm.barrier()

    def named(n):
        handles = [ringcomm.allreduce_async(arrays[n], name=f"a{i}", op=Sum) for i in range(3)]
        assert all(ringcomm.synchronize(handle)[0] == size for handle in handles)

    kinds = [(ordered_sum, 40, 1), (shared_average, 20, 1), (by_messages, 4, 1), (moves, 4, 5), (named, 1, 3)]
    before, done = None, 0
    while done < calls:
        kind, _, count = rng.choices(kinds, weights=[weight for _, weight, _ in kinds])[0]
        n = rng.choice(list(shared if kind is shared_average else arrays))
        kind(n)
        done += count
        if before is None and done >= settled:
            before = held()
    after = held()
    comm.barrier()
    print(f"held {before} {after}", flush=True)
    ringcomm.shutdown()


def held():
    """Returns resident private bytes, shared bytes, descriptors and threads."""
    process = psutil.Process()
    memory = process.memory_info()
    return memory.rss - memory.shared, memory.shared, len(os.listdir("/proc/self/fd")), process.num_threads()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_grows():
    result = mpi_case.run(3, mixed, CALLS, SETTLED, limit=3500, alone=True)
    check(result)


def test_nothing_grows_at_first():
    check(mpi_case.run(3, mixed, 6000, 2000, alone=True))


def check(result):
    told = re.findall(r"held (\(.*?\)) (\(.*?\))", result.text)
    assert len(told) == 3, result.text
    for before, after in ((ast.literal_eval(first), ast.literal_eval(last)) for first, last in told):
        assert after[0] - before[0] < 8 * MEBIBYTE, (before, after)
        assert after[1] - before[1] < 2 * MEBIBYTE, (before, after)
        assert after[2:] == before[2:], (before, after)
