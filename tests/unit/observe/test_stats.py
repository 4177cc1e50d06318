"""Statistics, compared with the costs of algorithms, by textbook formulas and by the model."""

from __future__ import annotations

import runpy
from math import ceil, floor, log2
from pathlib import Path

import cases_point_to_point as cases
import mpi_case
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import Config, threads
from ringcomm._src.core import _core

ONE_PIECE = Config(shared_memory="off", segment_bytes=1 << 30, window=1)
COUNT = 2520  # elements; divisible by every tested number of ranks
BYTES = 8 * COUNT
NETWORK = Config().network()

# Bytes and messages of the busiest rank, for a buffer of S bytes on p = 2 or more ranks.
log = lambda p: ceil(log2(p))  # noqa: E731
half = lambda p: 2 ** floor(log2(p))  # noqa: E731  the ranks that are left where others have given theirs away
f = lambda p: (p - 1) / p  # noqa: E731
LECTURE = {
    "all_to_all": (lambda p: p - 1, lambda p: p - 1),
    "master_worker": (lambda p: p - 1, lambda p: p - 1),
    "tree": (log, log),
    "round_robin": (lambda p: 2 * f(p), lambda p: 2 * (p - 1)),
    "butterfly_doubling": (log, log),
    "circulant": (lambda p: 2 * f(p), lambda p: 2 * log(p)),
    "ring": (lambda p: 2 * f(p), lambda p: 2 * (p - 1)),
    "butterfly_halving": (
        lambda p: 2 * f(half(p)) + (p != half(p)),
        lambda p: 2 * floor(log2(p)) + (p != half(p)),
    ),
    "bine_doubling": (log, log),
    # For odd p, most rounds have two peers: in a half, all but the last one or two.
    "bine_halving": (
        lambda p: 2 * f(p),
        lambda p: 2 * (2 * log(p) - 1 - (p <= 0.75 * 2 ** log(p)) if p % 2 else log(p)),
    ),
}


def call(comm, collective, x, algorithm):
    rows = [COUNT // comm.size] * comm.size
    given = {
        "allgather": lambda: comm.allgather(x[: COUNT // comm.size], rows, algorithm=algorithm),
        "barrier": lambda: comm.barrier(algorithm=algorithm),
    }
    return given.get(collective, lambda: getattr(comm, collective)(x, algorithm=algorithm))()


def counted(size, program, config=ONE_PIECE):
    """Returns the statistics of each rank."""

    def counting(comm):
        program(comm)
        return comm.stats()

    return threads.run(size, counting, config=config)


def balanced(stats):
    """Checks that all ranks together receive what they send."""
    names = {(one.operation, one.algorithm) for rank in stats for one in rank} - {("send", "network")}
    for operation, algorithm in names:
        source = "send" if operation == "recv" else operation
        sent = [rank.of(source, algorithm) for rank in stats]
        received = [rank.of(operation, algorithm) for rank in stats]
        assert sum(one.bytes_sent for one in sent) == sum(one.bytes_received for one in received), operation
        assert sum(one.messages_sent for one in sent) == sum(one.messages_received for one in received), operation


@pytest.mark.parametrize("size", range(1, 10))
def test_allreduces_send_what_the_lecture_says(size):
    names = [one.name for one in _core.algorithms() if one.collective == "allreduce"]
    assert sorted(names) == sorted(LECTURE)
    stats = counted(size, lambda comm: [comm.allreduce(np.ones(COUNT), algorithm=name) for name in names])
    balanced(stats)
    if size == 1:
        assert stats[0].total.messages_sent == 0 and stats[0].of("allreduce", "local").calls == len(names)
        return
    for name, (volume, messages) in LECTURE.items():
        ranks = [one.of("allreduce", name) for one in stats]
        assert all(one.calls == 1 for one in ranks)
        assert max(one.bytes_sent for one in ranks) == pytest.approx(volume(size) * BYTES), name
        assert max(one.messages_sent for one in ranks) == messages(size), name
    assert {one.of("allreduce", alias).calls for one in stats for alias in ("butterfly", "swing")} == {2}
    for name in ("ring", "round_robin", "circulant", "bine_halving"):  # every rank sends an equal number of bytes
        assert {one.of("allreduce", name).bytes_sent for one in stats} == {2 * BYTES * (size - 1) // size}, name


@given(st.integers(1, 9), st.integers(0, 200), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_ring_sends_all_blocks_but_one_there_and_but_one_back(size, count, calls):
    """Counts bytes of blocks that differ by one element.

    In the reduce-scatter phase rank r does not send block r+1; in the allgather phase it does not
    send block r+2.
    """
    stats = counted(size, lambda comm: [comm.allreduce(np.ones(count), algorithm="ring") for _ in range(calls)])
    balanced(stats)
    blocks = [len(part) * 8 for part in np.array_split(np.ones(count), size)]
    for rank, one in enumerate(stats):
        kept = blocks[(rank + 1) % size] + blocks[(rank + 2) % size]
        ring = one.of("allreduce", "local" if size == 1 else "ring")
        assert (ring.calls, ring.bytes_sent) == (calls, 0 if size == 1 else calls * (2 * sum(blocks) - kept))


@pytest.mark.parametrize("size", range(2, 10))
def test_every_algorithm_sends_what_the_model_prices(size):
    for algorithm in _core.algorithms():
        collective, name, *_ = algorithm
        stats = counted(size, lambda comm, c=collective, n=name: call(comm, c, np.ones(COUNT), n))
        balanced(stats)
        ranks = [one.of(collective, name) for one in stats]
        assert all(one.calls == 1 for one in ranks), algorithm
        schedules = [_core.schedule(collective, name, rank, size) for rank in range(size)]
        price = _core.price(schedules, BYTES, NETWORK)
        assert max(one.messages_sent for one in ranks) == price.messages, algorithm
        if collective != "barrier":
            assert max(one.bytes_sent for one in ranks) == pytest.approx(price.bytes), algorithm


@given(st.integers(2, 5), st.integers(0, 100_000), st.sampled_from(["off", "on"]), st.booleans())
@settings(max_examples=15, deadline=None)
def test_every_way_is_counted_and_balanced(size, count, shared_memory, timed):
    def program(comm):
        x = np.ones(count, np.uint8)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        comm.allreduce(x)
        comm.iallreduce(x).wait()
        prepared = comm.allreduce_init(x)
        prepared.start()
        prepared.wait()
        comm.sendrecv(x, right, 1, np.empty_like(x), left, 1)
        requests = [comm.isend(x, right, 2), comm.irecv(np.empty_like(x), left, 2)]
        for request in requests:
            request.wait()
        comm.neighbours("ring").allgather(x[None])
        comm.barrier()  # every message has been received

    stats = counted(size, program, Config(shared_memory=shared_memory, stats=timed))
    balanced(stats)
    way = "memory" if shared_memory == "on" else "network"
    for one in stats:
        assert one.of("allreduce").calls == 3
        assert one.of("send", way).calls == one.of("recv", way).calls >= 2
        assert (one.total.messages_sent == 0) == (shared_memory == "on")
        assert (one.total.memory_bytes > 0) <= (shared_memory == "on" and count > 0)
        assert (one.of("allreduce").hidden is not None) == timed
        if timed:
            assert all(each.hidden is None or 0 <= each.hidden <= 1 for each in one)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("count", [1, 300_000])
def test_memory_that_ranks_share(size, count):
    """Private arrays are copied to and from staging memory; shared ones need no copies."""

    def program(comm):
        x = comm.empty(count, "float64")
        x[:] = 1
        comm.allreduce(np.array(x))
        private = comm.stats(reset=True).of("allreduce", "shared")
        comm.allreduce(x, out=x)
        return private, comm.stats().of("allreduce", "shared")

    results = threads.run(size, program, config=Config(shared_memory="on"))
    private, shared = (sum(one[way].memory_bytes for one in results) for way in (0, 1))
    if count == 1:  # each rank writes its own element, and reads those of all ranks
        assert private == shared == size * 8 * size
    else:
        assert private == 4 * (size - 1) * 8 * count and shared == 2 * (size - 1) * 8 * count


def test_what_failed_is_told_apart():
    def program(comm):
        with pytest.raises(ringcomm.MismatchError):
            comm.allreduce(np.ones(3 + comm.rank), algorithm="ring")
        comm.allreduce(np.ones(COUNT), algorithm="ring")

    for one in counted(2, program):
        assert one.of("failed").calls == 1 and one.of("failed").messages_sent > 0
        assert one.of("allreduce", "ring").bytes_sent == BYTES


def test_tables():
    def program(comm):
        comm.allreduce(np.ones(COUNT), algorithm="ring")
        before = comm.stats(reset=True)
        assert not comm.stats().operations
        comm.barrier()
        return before, comm.stats()

    before, after = threads.run(2, program, config=ONE_PIECE)[0]
    assert before.of("allreduce") == before.of("allreduce", "ring").__class__(
        **{**before.of("allreduce", "ring").__dict__, "algorithm": ""}
    )
    assert before.as_dict()["allreduce", "ring"]["bytes_sent"] == BYTES
    assert {one.operation for one in after} == {"barrier"} and after.of("allreduce").calls == 0
    lines = str(before).splitlines()
    assert lines[0].split()[:2] == ["operation", "algorithm"] and lines[-1].startswith("all")
    assert any(line.split()[:4] == ["allreduce", "ring", "1", "2"] and "20,160" in line for line in lines)
    assert (before + after).total.calls == before.total.calls + after.total.calls


def test_the_table_of_counts_is_current():
    script = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "write_counts.py"), run_name="page")
    text = script["PAGE"].read_text(encoding="utf-8")
    assert script["page"](text) == text


@pytest.mark.parametrize("ranks", [2, 3])
def test_under_mpi(ranks):
    mpi_case.run(ranks, cases.counted)


def test_the_table_at_the_end():
    result = mpi_case.start(2, cases.named_and_counted, variables={"RINGCOMM_STATS": "1"})
    assert result.status == 0, result.text
    assert result.text.count("statistics of rank 0") == 1 and "statistics of rank 1" not in result.text, result.text
    assert any(line.split()[:3] == ["allreduce", "shared", "6"] for line in result.text.splitlines()), result.text
