"""Named operations over MPI, on 1 to 5 ranks, compared with NumPy: in any order, and fused.

Also `init` and `shutdown`.
"""

from __future__ import annotations

import mpi_case
import numpy as np
import pytest

import ringcomm


# ---- values ----------------------------------------------------------------------------------------------------------
def everything():
    """Calls each function once, with data and order by rank, and compares with NumPy."""
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    for dtype in (np.float32, np.float64, np.float16, np.int8, np.int64, np.uint8, np.bool_):
        check_functions(np.dtype(dtype), rank, size)
    mpi_case.say("fine", rank, size)


def check_functions(dtype, rank, size):
    whole = [(np.arange(size * 4).reshape(size * 2, 2) % 5 + r).astype(dtype) for r in range(size)]
    mine, wide = whole[rank], np.array(whole).astype(np.int64)
    total = np.logical_or.reduce(whole) if dtype.kind == "b" else wide.sum(axis=0)
    mean = total if dtype.kind == "b" else total // size if dtype.kind in "iu" else total / size
    pieces = np.array_split(total.astype(dtype), size)[rank]
    checks = {
        "sum": (lambda: ringcomm.allreduce(mine, op=ringcomm.Sum, name="sum"), total),
        "mean": (lambda: ringcomm.allreduce(mine, name="mean"), mean),
        "old": (lambda: ringcomm.allreduce(mine, average=False, name="old"), total),
        "min": (lambda: ringcomm.allreduce(mine, op=ringcomm.Min, name="min"), np.array(whole).min(axis=0)),
        "max": (lambda: ringcomm.allreduce_(mine.copy(), op=ringcomm.Max, name="max"), np.array(whole).max(axis=0)),
        "gather": (
            lambda: ringcomm.allgather(mine[: rank + 1], name="gather"),
            np.concatenate([w[: r + 1] for r, w in enumerate(whole)]),
        ),
        "send": (lambda: ringcomm.broadcast(mine, size - 1, name="send"), whole[size - 1]),
        "send_": (lambda: ringcomm.broadcast_(mine.copy(), 0, name="send_"), whole[0]),
        "scatter": (lambda: ringcomm.reducescatter(mine, op=ringcomm.Sum, name="scatter"), pieces),
        "swap": (
            lambda: ringcomm.alltoall(mine, name="swap"),
            np.concatenate([w[2 * rank : 2 * rank + 2] for w in whole]),
        ),
    }
    for name, (call, expected) in checks.items():
        result = call()
        assert result.dtype == dtype, (name, result.dtype)
        np.testing.assert_allclose(result.astype(float), np.asarray(expected).astype(float), rtol=2e-3, err_msg=name)
    splits = [2 * size if q == (rank + 1) % size else 0 for q in range(size)]
    output, received = ringcomm.alltoall(mine, splits, name="shift")
    np.testing.assert_array_equal(output, whole[rank - 1])
    assert received.tolist() == [2 * size if q == (rank - 1) % size else 0 for q in range(size)]
    group = ringcomm.grouped_allreduce([mine, mine[:1]], op=ringcomm.Sum, name="group")
    np.testing.assert_array_equal(group[0], total.astype(dtype))
    np.testing.assert_array_equal(group[1], total[:1].astype(dtype))
    gathered = ringcomm.grouped_allgather([mine, mine[:0]])
    np.testing.assert_array_equal(gathered[0], np.concatenate(whole))
    assert gathered[1].shape == (0, 2)
    np.testing.assert_array_equal(ringcomm.grouped_reducescatter([mine], op=ringcomm.Sum)[0], pieces)
    ringcomm.barrier()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_every_function(size):
    result = mpi_case.run(size, everything)
    assert sorted(result.lines("fine")) == [f"fine {rank} {size}" for rank in range(size)]


def test_every_function_without_a_launcher():
    assert mpi_case.run(0, everything).lines("fine") == ["fine 0 1"]


# ---- order, fusion, names --------------------------------------------------------------------------------------------
def shuffled(rounds, tensors):
    """Ranks submit names in different orders, in several rounds, some in place, some grouped."""
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    rng = np.random.default_rng(rank)
    for turn in range(rounds):
        handles = {}
        for i in rng.permutation(tensors):
            x = np.full(int(i) * 7 % 50, rank + turn + i, np.float32)
            if i % 3 == 0:
                handles[i] = ringcomm.allreduce_async_(x, op=ringcomm.Sum, name=f"g{i}")
            elif i % 3 == 1:
                handles[i] = ringcomm.allgather_async(x, name=f"g{i}")
            else:
                handles[i] = ringcomm.grouped_allreduce_async([x, x + 1], op=ringcomm.Sum, name=f"g{i}")
        for i in rng.permutation(tensors):
            assert isinstance(ringcomm.poll(handles[i]), bool)
            result = ringcomm.synchronize(handles[i])
            values = [r + turn + i for r in range(size)]
            count = int(i) * 7 % 50
            if i % 3 == 0:
                np.testing.assert_array_equal(result, np.full(count, sum(values), np.float32))
            elif i % 3 == 1:
                np.testing.assert_array_equal(result, np.repeat(np.array(values, np.float32), count))
            else:
                np.testing.assert_array_equal(result[0], np.full(count, sum(values), np.float32))
                np.testing.assert_array_equal(result[1], np.full(count, sum(values) + size, np.float32))
    ringcomm.shutdown()


@pytest.mark.parametrize(
    "variables", [{}, {"RINGCOMM_SHARED_MEMORY": "off"}, {"RINGCOMM_FUSION_BYTES": "0", "RINGCOMM_CACHE_CAPACITY": "0"}]
)
@pytest.mark.parametrize("size", [2, 3])
def test_any_order(size, variables):
    mpi_case.run(size, shuffled, 6, 40, variables=variables)


def nameless(count):
    """Submits more unnamed operations than cached numbers, many in flight, in many shapes."""
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    handles = [ringcomm.allreduce_async(np.full(k % 3, rank + k, np.int64), op=ringcomm.Sum) for k in range(count)]
    for k, handle in enumerate(handles):
        assert ringcomm.synchronize(handle).tolist() == [sum(r + k for r in range(size))] * (k % 3)
    for k in range(50):
        assert ringcomm.allreduce(np.float32(k)).item() == k


def test_nameless_operations_pair_in_order():
    mpi_case.run(2, nameless, 1500)


def by_priority(tensors):
    """Submits the operation of the highest priority last: it is done before some of the others.

    A rank may lose its core while it submits, so this is tried several times. Without priorities
    the last operation would be the last one done, every time.
    """
    ringcomm.init()
    rank, size = ringcomm.rank(), ringcomm.size()
    data = [np.full(1 << 20, rank + i, np.float32) for i in range(tensors)]
    overtakes = 0
    for _ in range(10):
        handles = [
            ringcomm.allreduce_async(x, op=ringcomm.Sum, name=f"p{i}", priority=i - 3) for i, x in enumerate(data)
        ]
        handles[-1].wait()
        overtakes += not all(ringcomm.poll(handle) for handle in handles)
        for i, handle in enumerate(handles):
            assert (ringcomm.synchronize(handle) == sum(r + i for r in range(size))).all()
    assert overtakes > 0
    first = data[0][:3]
    waiting = [
        ringcomm.grouped_allreduce_async([first, first], op=ringcomm.Sum, name="group", priority=rank),
        ringcomm.allgather_async(first, name="gather", priority=1),
        ringcomm.broadcast_async(first, 0, name="copy", priority=-1),
        ringcomm.alltoall_async(np.arange(size), name="swap", priority=1 << 30),
        ringcomm.reducescatter_async(np.ones(size), name="rows", op=ringcomm.Sum, priority=-(1 << 30)),
    ]
    results = [ringcomm.synchronize(handle) for handle in waiting]
    assert results[0][1].tolist() == [sum(range(size))] * 3 and results[4].tolist() == [size]
    for wrong, error in ((1.5, TypeError), (1 << 40, ValueError)):
        with pytest.raises(error, match="priority"):
            ringcomm.allreduce_async(first, name="wrong", priority=wrong)
    ringcomm.shutdown()


@pytest.mark.parametrize("size", [2, 3])
def test_higher_priority_runs_first(size):
    mpi_case.run(size, by_priority, 12)


def one_name_twice():
    ringcomm.init()
    comm = ringcomm.communicator()
    if comm.rank == 0:
        first = ringcomm.allreduce_async(np.ones(3), name="w")
        try:
            ringcomm.allreduce_async(np.ones(3), name="w")
        except ValueError as error:
            assert "allreduce.w" in str(error) and "in flight" in str(error)
        else:
            raise AssertionError("accepted")
        comm.barrier()
        assert first.wait().tolist() == [1, 1, 1]
    else:
        comm.barrier()
        ringcomm.allreduce(np.ones(3), name="w")
    assert ringcomm.allreduce(np.ones(3), name="w").tolist() == [1, 1, 1]


def test_a_name_in_flight_is_refused():
    mpi_case.run(2, one_name_twice)


def results_live():
    """Results in the core's memory outlive the handle, the next operations and the session."""
    ringcomm.init()
    rank = ringcomm.rank()
    kept = [ringcomm.allgather(np.full((rank + 1, 3), k), name="same") for k in range(20)]
    ringcomm.shutdown()
    for k, result in enumerate(kept):
        assert result.shape == (3, 3) and (result == k).all()
        result += 1
    assert (kept[0] == 1).all()


def test_results_outlive_everything():
    mpi_case.run(2, results_live)


def wires():
    ringcomm.init()
    x = np.arange(100, dtype=np.float32)
    for wire in ("float16", "bfloat16"):
        assert ringcomm.allreduce(x, compression=wire, op=ringcomm.Sum).tolist() == (x * ringcomm.size()).tolist()
    assert ringcomm.allreduce(x.astype(int), compression="float16", op=ringcomm.Sum)[99] == 99 * ringcomm.size()


def test_compression_by_a_narrow_wire():
    mpi_case.run(2, wires, variables={"RINGCOMM_SHARED_MEMORY": "off"})


# ---- init and shutdown -----------------------------------------------------------------------------------------------
def again(times):
    for turn in range(times):
        assert not ringcomm.is_initialized()
        ringcomm.init()
        ringcomm.init()
        assert ringcomm.is_initialized()
        assert ringcomm.allreduce(np.ones(2) * turn, name="x").tolist() == [turn, turn]
        if turn % 2 and ringcomm.rank() == 0:  # one rank calls it early
            ringcomm.shutdown()
        ringcomm.shutdown()


@pytest.mark.parametrize("size", [1, 3])
def test_init_after_shutdown(size):
    mpi_case.run(size, again, 6)


def before_init():
    for call in (
        ringcomm.rank,
        ringcomm.size,
        ringcomm.local_rank,
        ringcomm.cross_size,
        lambda: ringcomm.allreduce(np.ones(1)),
        ringcomm.barrier,
        ringcomm.global_process_set.size,
    ):
        try:
            call()
        except ValueError as error:
            assert "has not been initialized; use ringcomm.init()" in str(error)
        else:
            raise AssertionError("worked before init")
    ringcomm.shutdown()


def test_before_init():
    before_init()


def where():
    ringcomm.init()
    size = ringcomm.size()
    assert ringcomm.local_size() == size and ringcomm.local_rank() == ringcomm.rank()
    assert (ringcomm.cross_rank(), ringcomm.cross_size(), ringcomm.is_homogeneous()) == (0, 1, True)
    assert ringcomm.mpi_threads_supported()
    assert ringcomm.communicator().shared_memory == (size > 1), ringcomm.communicator().shared_memory_reason


@pytest.mark.parametrize("size", [1, 3])
def test_where_ranks_are(size):
    mpi_case.run(size, where)


def some_ranks():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.rank == 1:
        try:
            ringcomm.init([0, 2])
        except ValueError as error:
            assert "rank 1" in str(error)
        else:
            raise AssertionError
        ringcomm.init(MPI.COMM_SELF)
        assert ringcomm.size() == 1
    else:
        ringcomm.init([0, 2])
        assert ringcomm.size() == 2 and ringcomm.rank() == world.rank // 2
        assert ringcomm.allreduce(np.array([world.rank]), op=ringcomm.Sum).tolist() == [2]


def test_init_with_some_ranks():
    mpi_case.run(3, some_ranks)


def no_mpi():
    import sys

    sys.modules["mpi4py.MPI"] = None
    ringcomm.init()
    assert ringcomm.size() == 1
    assert ringcomm.allreduce(np.ones(2), name="x").tolist() == [1, 1]
    assert ringcomm.communicator().allgather([1, 2]).tolist() == [1, 2]


def test_one_rank_without_any_mpi():
    mpi_case.run(0, no_mpi, alone=True)


def low_thread_level():
    import mpi4py

    mpi4py.rc.thread_level = "serialized"
    everything()
    assert not ringcomm.mpi_threads_supported()
    shuffled(2, 10)


@pytest.mark.parametrize("size", [1, 3])
def test_below_thread_multiple(size):
    mpi_case.run(size, low_thread_level, alone=True)
