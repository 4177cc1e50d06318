"""Algorithms in Python: verified, compared between ranks, and run or rejected."""

from __future__ import annotations

import contextlib
import itertools
from unittest import mock

import mpi_case
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import Sum, threads
from ringcomm._src.algorithms import registry as algorithms
from ringcomm._src.algorithms.registry import combine, copy, receive, reduce, send
from ringcomm._src.core import _core
from ringcomm._src.observe.events import Listener
from ringcomm._src.platform import bootstrap
from ringcomm._src.training import plans

numbers = itertools.count()


def ring(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    there = [[send(right, (rank - i) % size), reduce(left, (rank - i - 1) % size)] for i in range(size - 1)]
    back = [[send(right, (rank + 1 - i) % size), receive(left, (rank - i) % size)] for i in range(size - 1)]
    return there + back


def star(rank, size):
    """A star.

    Each step is a separate round. Rank 0 receives from the other ranks in falling order, so the
    operand order must be derived.
    """
    if rank == 0:
        return [*(reduce(peer, 0) for peer in reversed(range(1, size))), [send(peer, 0) for peer in range(1, size)]]
    return [send(0, 0), receive(0, 0)]


def with_scratch(rank, size):
    """Every rank sends to every rank; parts are stored separately, then added in rank order."""
    others = [peer for peer in range(size) if peer != rank]
    place = {rank: 0} | {peer: 1 + i for i, peer in enumerate(others)}
    exchange = [step for peer in others for step in (send(peer, 0), receive(peer, place[peer]))]
    add = [combine(place[q], place[0]) for q in range(1, size)]
    return [[*exchange, *add, *([copy(place[0], 0)] if rank else [])]]


def registered(fn, **options):
    name = f"own{next(numbers)}"
    ringcomm.register_algorithm(name, fn, **options)
    return name


@given(
    st.integers(1, 9),
    st.sampled_from([ring, star]),
    st.sampled_from([0, 1, 8, 97]),
    st.sampled_from([np.float32, np.int8]),
)
def test_own_allreduce(size, fn, count, dtype):
    name = registered(fn)

    def program(comm):
        x = np.arange(count).astype(dtype) + dtype(comm.rank)
        handle = comm.iallreduce(x, algorithm=name)
        return comm.allreduce(x, algorithm=name), handle.wait()

    with Listener() as listener:
        results = threads.run(size, program)
    paths = [event.detail for event in listener.take() if event.category == "run" and event.name == "allreduce"]
    assert paths == [name if size > 1 else "local"] * 2 * size
    expected = sum(np.arange(count).astype(dtype) + dtype(rank) for rank in range(size))
    for both in results:
        for result in both:
            np.testing.assert_array_equal(result, expected)


@given(st.integers(1, 7))
@settings(max_examples=7)
def test_operand_orders_are_found_so_that_all_ranks_get_the_same_bits(size):
    for fn, options in ((ring, {}), (star, {}), (with_scratch, {"blocks": 1, "temps": lambda p: [0] * (p - 1)})):
        name = registered(fn, **options)
        results = threads.run(
            size,
            lambda comm, name=name: comm.allreduce(
                np.random.default_rng(comm.rank).standard_normal(64), algorithm=name
            ),
        )
        assert len({result.tobytes() for result in results}) == 1


def test_scratch_and_copies():
    def by_copy(rank, size):
        peer = 1 - rank
        return [[copy(0, 1), send(peer, 0), reduce(peer, 1)], [copy(1, 0)]]

    name = registered(by_copy, blocks=1, temps=[0])
    assert [
        r.tolist() for r in threads.run(2, lambda comm: comm.allreduce(np.array([1.0 + comm.rank]), algorithm=name))
    ] == [[3.0]] * 2


@pytest.mark.parametrize("size", [1, 2, 5])
def test_own_allgather_reducescatter_alltoall_barrier(size):
    def gather(rank, p):
        return [[step for q in range(p) if q != rank for step in (send(q, rank), receive(q, q))]]

    def scatter(rank, p):
        return [[step for q in range(p) if q != rank for step in (send(q, q), reduce(q, rank))]]

    def swap(rank, p):
        steps = [step for q in range(p) if q != rank for step in (send(q, q), receive(q, p + q))]
        return [[*steps, copy(rank, p + rank)]]

    def meet(rank, p):
        return [[step for q in range(p) if q != rank for step in (send(q, 0), reduce(q, 0))]]

    names = [
        registered(fn, collective=kind)
        for fn, kind in ((gather, "allgather"), (scatter, "reducescatter"), (swap, "alltoall"), (meet, "barrier"))
    ]

    def program(comm):
        x = np.arange(2.0 * size) + comm.rank
        comm.barrier(algorithm=names[3])
        kinds = (comm.allgather, comm.reducescatter, comm.alltoall)
        return [(call(x, algorithm=name), call(x)) for call, name in zip(kinds, names, strict=False)]

    for rank_results in threads.run(size, program):
        for own, built_in in rank_results:
            np.testing.assert_array_equal(own, built_in)


def test_a_schedule_of_the_core_will_do():
    name = registered(lambda rank, size: _core.schedule("allreduce", "tree", rank, size))
    assert threads.run(5, lambda comm: comm.allreduce(np.int64(comm.rank), algorithm=name).item()) == [10] * 5


# ---- wrong algorithms ------------------------------------------------------------------------------------------------
def drop_last(rank, size):
    return ring(rank, size)[:-1]


def send_only(rank, size):
    return [[send((rank + 1) % size, 0)]]


def twice(rank, size):
    return ring(rank, size) + ring(rank, size)


def broken(rank, size):
    raise KeyError("no plan")


@pytest.mark.parametrize(
    "fn, error", [(drop_last, ValueError), (send_only, ValueError), (twice, ValueError), (broken, KeyError)]
)
def test_a_wrong_algorithm_never_runs(fn, error):
    name = registered(fn)

    def program(comm):
        for _ in range(2):
            with pytest.raises(error):
                comm.allreduce(np.ones(9), algorithm=name)
        return comm.allreduce(np.ones(9))[0]

    assert threads.run(3, program) == [3.0] * 3


def test_ranks_with_different_algorithms_all_hear_of_it(monkeypatch):
    name = registered(ring)
    other = algorithms.Algorithm(name, "allreduce", star, None, ())
    per_thread = {"rank 1": other, "rank 2": None}
    import threading

    real = algorithms.registered
    monkeypatch.setattr(
        algorithms, "registered", lambda kind, which: per_thread.get(threading.current_thread().name, real(kind, which))
    )

    def program(comm):
        with pytest.raises(ringcomm.MismatchError, match=r"differs between ranks.*1, 2") as caught:
            comm.allreduce(np.ones(3), algorithm=name)
        return caught.value.ranks, comm.allreduce(np.ones(3)).tolist()

    assert threads.run(3, program) == [((1, 2), [3.0] * 3)] * 3


def test_bad_registrations():
    for name, options in (
        ("ring", {}),
        ("", {}),
        ("x" * 16, {}),
        ("two_level:own", {}),
        ("own/1", {}),
        ("own#1", {}),
        ("tree:3", {}),
        ("fine", {"collective": "broadcast"}),
        ("fine", {"temps": [0]}),
    ):
        with pytest.raises(ValueError):
            ringcomm.register_algorithm(name, ring, **options)
    with pytest.raises(TypeError):
        ringcomm.register_algorithm("fine", "not a function")


# ---- requested algorithms run: ordered, by name and in plans, on every process set -----------------------------------
LONGEST = "own_of_15_bytes"


def plan_step(process_set, data, algorithm=None):
    bucket = plans.BucketShape(_core.DTYPES.index("float32"), [data.size])
    plan = plans.StepPlan(process_set, "wish", f"wish of {algorithm}", [bucket], 1, int(Sum), (1.0, 1.0), algorithm)
    plan.place(0, 0, data.ctypes.data)
    plan.begin()
    plan.ready(0)
    plan.send_rest(plans.Presence(1), plans.KEPT)
    plan.wait()
    plan.close()


def paths_of(work):
    with Listener() as listener:
        work()
    return {event.detail for event in listener.take() if event.category == "run" and event.bytes == 40}


def every_way(process_set, algorithm):
    """Runs an all-reduce of 10 floats on a set as named operations, fused, and in a step of a plan."""
    data = [np.ones(10, np.float32) for _ in range(3)]
    of = {"op": Sum, "process_set": process_set, "algorithm": algorithm}
    small = [np.ones(5, np.float32) for _ in range(2)]
    return {
        *paths_of(lambda: ringcomm.allreduce(data[0], name="one", **of)),
        *paths_of(lambda: ringcomm.grouped_allreduce(small, name="two", **of)),
        *paths_of(lambda: plan_step(process_set, data[1], algorithm)),
    } - {"fused, 2 together"}


def wishes_come_true(default, rule, host_of=()):
    """Checks that requests take effect. `host_of`: each rank's host, which shares memory."""
    ringcomm.register_algorithm(LONGEST, star)
    if host_of:
        from mpi4py import MPI

        mine = (f"host{host_of[MPI.COMM_WORLD.rank]}",)
        with mock.patch.object(bootstrap, "host_key", lambda: mine):
            ringcomm.init()
            each_way_of(default, rule, len(set(host_of)))
    else:
        ringcomm.init()
        each_way_of(default, rule, hosts=1)
    ringcomm.shutdown()


def each_way_of(default, rule, hosts):
    rank, everybody = ringcomm.rank(), ringcomm.global_process_set
    some = ringcomm.add_process_set([0, 2])
    comm = ringcomm.communicator()
    usual = default or rule or ("shared" if comm.shared_memory and hosts == 1 else "")
    for wish in (None, "ring", "butterfly_halving", "tree:1", "master_worker:1", LONGEST):
        expected = wish or usual
        ordered = paths_of(lambda wish=wish: comm.allreduce(np.ones(10, np.float32), algorithm=wish))
        found = [ordered, every_way(everybody, wish), *([every_way(some, wish)] if rank != 1 else [])]
        for paths in found if expected else ():
            names = {path.removeprefix("two_level:") for path in paths} if hosts > 1 else paths
            assert names == {expected}, (wish, found)
    for wish, why in (("rign", "no allreduce algorithm 'rign'"), ("tree:3", "not one of the 3 ranks")):
        with pytest.raises(ValueError, match=why):
            ringcomm.allreduce(np.ones(2), name="wrong", algorithm=wish)
        with pytest.raises(ValueError, match=why):
            comm.allreduce(np.ones(2), algorithm=wish)
    if rank == 1:
        ringcomm.join()
    else:  # a rank that has joined builds its call from the algorithm's name alone
        for wish in (LONGEST, "two_level:butterfly_doubling", "tree:2"):
            refused = hosts == 1 and wish.startswith("two_level")
            with pytest.raises(ValueError, match="several hosts") if refused else contextlib.nullcontext():
                result = ringcomm.allreduce(np.ones(10, np.float32), op=Sum, name=f"joined {wish}", algorithm=wish)
                np.testing.assert_array_equal(result, np.full(10, 2, np.float32))
        ringcomm.join()


@pytest.mark.parametrize("memory", ["auto", "off"])
@pytest.mark.parametrize("default, rule", [("", ""), ("", "circulant"), ("round_robin", "circulant"), (LONGEST, "")])
def test_an_algorithm_that_is_asked_for_runs(tmp_path, memory, default, rule):
    file = tmp_path / "rules.json"
    file.write_text(f'[{{"algorithm": "{rule}"}}]')
    variables = {"RINGCOMM_ALGORITHM": default, "RINGCOMM_TUNING_FILE": str(file), "RINGCOMM_SHARED_MEMORY": memory}
    mpi_case.run(3, wishes_come_true, default, rule, variables=variables)


@pytest.mark.parametrize("default", ["", LONGEST])
@pytest.mark.parametrize("host_of", [(0, 0, 1), (0, 1, 0)])
def test_an_algorithm_that_is_asked_for_runs_between_hosts(default, host_of):
    mpi_case.run(3, wishes_come_true, default, "", host_of, variables={"RINGCOMM_ALGORITHM": default})


def refused(why):
    for _ in range(2):
        with pytest.raises(ValueError, match=why):
            ringcomm.init()
        with pytest.raises(ValueError, match=why):
            ringcomm.Communicator()
    assert not ringcomm.is_initialized()


@pytest.mark.parametrize("name, why", [("rign", "RINGCOMM_ALGORITHM.*'rign'"), ("tree:2", "not one of the 2 ranks")])
def test_an_unknown_default_is_refused_on_all_ranks(name, why):
    mpi_case.run(2, refused, why, variables={"RINGCOMM_ALGORITHM": name})
