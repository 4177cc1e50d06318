"""Without worker threads (no MPI_THREAD_MULTIPLE), a waiting caller drives operations."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cases_point_to_point as cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import ANY_SOURCE
from ringcomm._src.communicator.communicator import Communicator
from ringcomm._src.core import _core
from ringcomm._src.platform.threads_link import ThreadsLink, ThreadsWorld

LIMIT = 60  # seconds after which a test counts as hung
CONFIGS = {"shared": ringcomm.Config(shared_memory="on"), "messages": ringcomm.Config(shared_memory="off")}
LONG = 200_000  # 8-byte elements: more data than a rank sends before the receive is posted


def open_rank(world: ThreadsWorld, rank: int, way: str) -> Communicator:
    link = ThreadsLink(world, rank)
    link.worker = _core.Worker(False)
    return Communicator(link, CONFIGS["messages" if world.size == 1 else way])


def run(size: int, program: Any, way: str) -> None:
    """Runs `ringcomm.threads.run` with a time limit, and threadless workers for each rank."""
    world, failures = ThreadsWorld(size), []

    def rank_main(rank: int) -> None:
        try:
            comm = open_rank(world, rank, way)
            program(comm)
            comm.close()
        except BaseException as error:
            failures.append(error)
            world.kill(rank)

    threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LIMIT
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    hanging = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    for rank in hanging:
        world.kill(rank)
    assert not hanging, f"ranks {hanging} hang"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("way", CONFIGS)
@pytest.mark.parametrize("receives", [True, False])
def test_a_collective_moves_what_is_in_the_background(way, receives):
    def program(comm):
        x, y = cases.numbers(LONG, comm.rank), np.empty(LONG, "int64")
        if comm.rank == 0:
            request = comm.irecv(y, 1, 3) if receives else comm.isend(x, 1, 3)
            assert comm.allreduce(np.ones(1000), op="sum")[0] == 2
            request.wait(0)  # it finished before the collective did
        else:
            comm.send(x, 0, 3) if receives else comm.recv(y, 0, 3)
            assert comm.allreduce(np.ones(1000), op="sum")[0] == 2
        if receives == (comm.rank == 0):
            assert np.array_equal(y, cases.numbers(LONG, 1 - comm.rank))

    run(2, program, way)


@pytest.mark.parametrize("way", CONFIGS)
@pytest.mark.parametrize("waits", ["recv", "wait", "probe"])
def test_a_message_s_wait_moves_collectives_in_the_background(way, waits):
    def program(comm):
        handle = comm.iallreduce(np.ones(LONG), op="sum")
        out = np.empty(1)
        if comm.rank == 0:
            if waits == "recv":
                comm.recv(out, 1, 1)
            elif waits == "wait":
                comm.irecv(out, 1, 1).wait()
            else:
                comm.probe(1, 1)
                comm.recv(out, 1, 1)
        assert handle.wait()[-1] == 2
        if comm.rank == 1:
            comm.send(out, 0, 1)

    run(2, program, way)


@st.composite
def rounds(draw):
    """Draws batches of messages (source, dest, tag, count), and a collective after each."""
    size = draw(st.integers(1, 9))
    rank = st.integers(0, size - 1)
    message = st.tuples(rank, rank, st.integers(0, 2), st.sampled_from([0, 1, 300, 9000, 40_000]))
    some = st.lists(st.tuples(st.lists(message, max_size=5), st.sampled_from(["allreduce", "barrier", "iallreduce"])))
    return (
        size,
        draw(some.filter(lambda them: len(them) <= 4)),
        draw(st.booleans()),
        draw(st.sampled_from(list(CONFIGS))),
    )


@given(rounds())
@settings(max_examples=30, deadline=None)
def test_random_messages_among_collectives(drawn):
    size, lots, from_any, way = drawn

    def program(comm):
        requests, handles = [], []
        for lot, (messages, collective) in enumerate(lots):
            for source, dest, tag, count in messages:
                tag += 3 * lot
                if comm.rank == source:
                    requests.append((comm.isend(cases.numbers(count, source), dest, tag), None, 0))
                if comm.rank == dest:
                    out = np.zeros(40_000, "int64")
                    wanted = ANY_SOURCE if from_any else source
                    requests.append((comm.irecv(out, wanted, tag), out, count))
            if collective == "barrier":
                comm.barrier()
            elif collective == "allreduce":
                assert comm.allreduce(np.ones(100), op="sum")[0] == size
            else:
                handles.append(comm.iallreduce(np.ones(5000), op="sum"))
        expected = sorted(
            (s, t + 3 * lot, 8 * n) for lot, one in enumerate(lots) for s, d, t, n in one[0] if d == comm.rank
        )
        seen = []
        for request, out, count in requests:
            status = request.wait(LIMIT)
            if out is None:
                continue
            assert from_any or status.count("int64") == count
            n = status.count("int64")
            assert np.array_equal(out[:n], cases.numbers(n, status.source))
            seen.append((status.source, status.tag, status.nbytes))
        assert sorted(seen) == expected
        for handle in handles:
            assert handle.wait()[0] == size

    run(size, program, way)


class Alarm(Exception):
    """The exception that the signal handler raises."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Sends a signal whose handler raises, as Ctrl-C does, while the code inside waits."""

    def ring(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("way", CONFIGS)
def test_a_signal_ends_waits_and_messages_go_on(way):
    world, over = ThreadsWorld(2), threading.Event()
    failures = []

    def peer() -> None:
        try:
            comm = open_rank(world, 1, way)
            assert over.wait(LIMIT)
            comm.send(np.ones(LONG), 0, 5)
            comm.close()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=peer, daemon=True)
    thread.start()
    comm = open_rank(world, 0, way)
    out = np.zeros(LONG)
    request = comm.irecv(out, 1, 5)
    waits = (
        lambda: comm.recv(np.empty(1), 1, 4),
        lambda: comm.recv(np.empty(1), ANY_SOURCE, 4),
        lambda: comm.probe(1, 4),
        request.wait,
    )
    try:
        for wait in waits:
            with pytest.raises(Alarm), alarm(0.05):
                wait()
    finally:
        over.set()
    assert request.wait(LIMIT).source == 1 and out.all()
    comm.close()
    thread.join(LIMIT)
    assert not failures and not thread.is_alive()
