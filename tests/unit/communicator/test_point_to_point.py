"""Point-to-point messages, by shared memory and transport, with threads and under MPI."""

from __future__ import annotations

import random
import threading

import cases_point_to_point as cases
import mpi_case
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import ANY_SOURCE
from ringcomm.threads import run as run_threads

CONFIGS = {"shared": ringcomm.Config(shared_memory="on"), "messages": ringcomm.Config(shared_memory="off")}


def run(size, program, way, *args):
    config = CONFIGS["messages"] if size == 1 else CONFIGS[way]
    return run_threads(size, program, *args, config=config)


@pytest.mark.parametrize("way", CONFIGS)
@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_cases_on_one_to_nine_ranks(case, way):
    for size in (1, 2, 3, 5, 9):
        run(size, case, way)


@given(st.data())
@settings(max_examples=40)
def test_random_programs(data):
    """Each rank sends (dest, tag, count), then receives by source and tag in another order."""
    size = data.draw(st.integers(1, 5))
    message = st.tuples(st.integers(0, size - 1), st.integers(0, 2), st.sampled_from([0, 1, 300, 9000, 20_000]))
    plans = [data.draw(st.lists(message, max_size=8)) for _ in range(size)]
    orders = [random.Random(data.draw(st.integers(0, 2**32))) for _ in range(size)]
    way = data.draw(st.sampled_from(sorted(CONFIGS)))

    def program(comm):
        requests = [comm.isend(cases.numbers(n, i), dest, tag) for i, (dest, tag, n) in enumerate(plans[comm.rank])]
        incoming = [
            [(source, tag, n, i) for i, (dest, tag, n) in enumerate(plan) if dest == comm.rank]
            for source, plan in enumerate(plans)
        ]
        streams = {(s, t) for one in incoming for s, t, _, _ in one}
        wanted = [key for key in sorted(streams) for one in incoming for s, t, _, _ in one if (s, t) == key]
        orders[comm.rank].shuffle(wanted)
        for source, tag in wanted:
            _, _, n, i = incoming[source].pop(next(k for k, m in enumerate(incoming[source]) if m[1] == tag))
            out = np.empty(n, "int64")
            assert comm.recv(out, source, tag).count("int64") == n
            assert np.array_equal(out, cases.numbers(n, i))
        for request in requests:
            request.wait(60)

    run(size, program, way)


def test_bad_arguments():
    def program(comm):
        x = np.zeros((4, 4))
        with pytest.raises(ValueError, match="dest 2 is not a rank"):
            comm.send(x, 2)
        with pytest.raises(ValueError, match="source -1"):
            comm.recv(x, -1)
        with pytest.raises(ValueError, match="tag -3"):
            comm.send(x, 0, -3)
        with pytest.raises(ValueError, match="contiguous"):
            comm.recv(x[:, 1])
        with pytest.raises(ValueError, match="contiguous"):
            comm.irecv(x[:, 1])
        with pytest.raises(ValueError, match="read-only"):
            comm.recv(np.broadcast_to(x, (2, 4, 4)))
        with pytest.raises(TypeError):
            comm.send(np.array([object()]), 0)
        with pytest.raises(TimeoutError, match=r"recv\(source=any, tag=9\)"):
            request = comm.irecv(x, ANY_SOURCE, 9)
            try:
                request.wait(0.01)
            finally:
                request.cancel()

    run(2, program, "shared")


@pytest.mark.parametrize("way", CONFIGS)
def test_what_was_never_received_is_told_at_close(way):
    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(5), 1, 42)
        comm.barrier()

    with pytest.raises(ringcomm.MismatchError, match=r"rank 1 closed .* rank 0 with tag 42 .40 bytes.*"):
        run(2, program, way)


@pytest.mark.parametrize("way", CONFIGS)
def test_who_waits_for_a_rank_that_failed_is_released(way):
    def program(comm):
        if comm.rank == 0:
            raise KeyError("the cause")
        comm.recv(np.zeros(1), 0 if comm.rank == 1 else ANY_SOURCE, 5)

    with pytest.raises(KeyError, match="the cause"):
        run(3, program, way)


@pytest.mark.parametrize("way", CONFIGS)
def test_huge_messages(way):
    run(2, cases.huge, way)


@pytest.mark.parametrize("way", CONFIGS)
def test_what_is_in_the_background_moves_while_its_caller_computes(way):
    received, sent = threading.Event(), threading.Event()

    def program(comm):
        x, y = cases.numbers(200_000, comm.rank), np.empty(200_000, "int64")
        if comm.rank == 0:
            requests = comm.irecv(y, 1, 3), comm.isend(x, 1, 4)
            assert sent.wait(60) and received.wait(60)  # the worker makes progress without a call of this thread
            for request in requests:
                request.wait()
        else:
            comm.send(x, 0, 3)
            sent.set()
            comm.recv(y, 0, 4)
            received.set()
        assert np.array_equal(y, cases.numbers(200_000, 1 - comm.rank))

    run(2, program, way)


def test_torch_tensors():
    torch = pytest.importorskip("torch")

    def program(comm):
        right, left = cases.around(comm)
        out = torch.zeros(1000, dtype=torch.bfloat16)
        comm.sendrecv(torch.full((1000,), comm.rank, dtype=torch.bfloat16), right, 0, out, left, 0)
        assert (out == left).all()

    run(3, program, "shared")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_under_mpi(ranks):
    mpi_case.run(ranks, cases.all_cases)


@pytest.mark.parametrize("shared_memory, mpi_threads", [("off", True), ("off", False), ("auto", False)])
def test_under_mpi_by_messages_and_without_a_thread(shared_memory, mpi_threads):
    mpi_case.run(3, cases.all_cases, shared_memory, mpi_threads)


@pytest.mark.parametrize("shared_memory, mpi_threads", [("auto", True), ("off", False)])
def test_an_interrupted_wait_leaves_the_communicator_whole(shared_memory, mpi_threads):
    mpi_case.run(2, cases.interrupted, shared_memory, mpi_threads)


@pytest.mark.parametrize("shared_memory", ["off", "auto"])
def test_what_was_never_received_is_told_at_close_under_mpi(shared_memory):
    mpi_case.run(2, cases.leftovers, shared_memory)


def test_a_dead_peer_ends_the_wait():
    """MPICH's launcher kills the surviving rank immediately."""
    result = mpi_case.start(2, cases.a_peer_dies, limit=60)
    assert result.status != 0 and not result.left_behind
    named = result.lines("named")
    assert named == ["named (1,)"] or "BAD TERMINATION" in result.text, result.text
