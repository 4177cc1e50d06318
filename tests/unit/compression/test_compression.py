"""Encoded transfers: identical bits on all ranks by every route, and right residuals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import Compression, Config, Feedback, threads
from ringcomm._src.base.wire_formats import predicts_gain
from ringcomm._src.compression.compression import choose
from ringcomm._src.core import _core

FORMATS = [
    Compression.int8,
    Compression.int8(group=64, stochastic=True),
    Compression.int4,
    Compression.onebit,
    Compression.onebit(group=32, mean="two"),
    Compression.ternary,
    Compression.terngrad,
    Compression.topk(0.1),
    Compression.topk(0.05, values="bf16"),
    Compression.threshold(0.5),
]
MESSAGES = Config(shared_memory="off")
DIRECT = ("round_robin", "all_to_all", "master_worker")


def data(rank, count, seed=0, dtype=np.float32):
    return np.random.default_rng(100 * seed + rank).standard_normal(count).astype(dtype)


def equal(results):
    return all(np.array_equal(one.view(np.uint8), results[0].view(np.uint8)) for one in results)


@given(
    size=st.integers(1, 9),
    wire=st.sampled_from(FORMATS),
    count=st.sampled_from([0, 1, 7, 255, 257, 1025, 3001, 40_000]),
    algorithm=st.sampled_from([None, *DIRECT]),
    dtype=st.sampled_from(["float32", "float64", "float16"]),
    op=st.sampled_from([ringcomm.Sum, ringcomm.Average]),
    segment=st.sampled_from([0, 4096]),
)
@settings(max_examples=80, deadline=None)
def test_all_ranks_end_with_equal_bits(size, wire, count, algorithm, dtype, op, segment):
    def program(comm):
        feedback = Feedback(count)
        results = []
        for call in range(3):
            x = data(comm.rank, count, call, dtype)
            kept = x.copy()
            out = comm.allreduce(x, op, algorithm=algorithm, wire=wire, feedback=feedback)
            assert np.array_equal(x, kept) and out.dtype == x.dtype
            results.append(out)
        return np.concatenate(results)

    assert equal(threads.run(size, program, config=Config(shared_memory="off", segment_bytes=segment)))


@pytest.mark.parametrize("wire", FORMATS, ids=str)
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("algorithm", DIRECT)
def test_what_is_left_out_is_owed(wire, size, algorithm):
    """The sum of all results equals the sum of all inputs minus the final residuals."""
    count, calls = 3001, 20

    def program(comm):
        feedback, given, arrived = Feedback(count), np.zeros(count), np.zeros(count)
        for call in range(calls):
            x = data(comm.rank, count, call)
            dropped = call % 6 == 4
            result = comm.allreduce(x, algorithm=algorithm, wire=wire, feedback=feedback)
            if dropped:
                feedback.undo()
            else:
                given, arrived = given + x, arrived + result
        return given, arrived, np.array(feedback.residual)

    ranks = threads.run(size, program, config=MESSAGES)
    given = sum(one[0] for one in ranks)
    residual = sum(one[2] for one in ranks)
    assert np.allclose(ranks[0][1] + residual, given, atol=2e-3)
    assert np.abs(residual).max() > 0


def test_inside_a_host_nothing_is_encoded():
    def program(comm):
        feedback = Feedback(1000)
        x = data(comm.rank, 1000)
        result = comm.allreduce(x, wire="onebit", feedback=feedback)
        return np.array_equal(result, comm.allreduce(x)), feedback.residual.any()

    assert threads.run(2, program, config=Config(shared_memory="on")) == [(True, False)] * 2


@pytest.mark.parametrize("wire", FORMATS, ids=str)
def test_fewer_bytes_are_sent(wire):
    count = 1 << 18

    def program(comm):
        x = data(comm.rank, count)
        comm.allreduce(x, algorithm="round_robin")
        dense = comm.stats(reset=True).of("allreduce").bytes_sent
        comm.allreduce(x, algorithm="round_robin", wire=wire)
        return comm.stats().of("allreduce").bytes_sent / dense

    sent = max(threads.run(4, program, config=MESSAGES))
    promised = _core.wire_ratio(wire.code, _core.DTYPES.index("float32"))
    if wire.name != "threshold":  # the number of elements above a threshold is not known in advance
        assert 0.6 * promised <= sent <= 1.3 * promised


@given(
    wire=st.sampled_from(FORMATS),
    size=st.integers(2, 6),
    count=st.integers(3000, 60_000),
    algorithm=st.sampled_from([None, *DIRECT]),
    timed=st.booleans(),
)
@example(wire=FORMATS[1], size=2, count=57_827, algorithm=None, timed=False)  # the last segment grows
@settings(max_examples=30, deadline=None)
def test_what_encoding_saves_is_counted(wire, size, count, algorithm, timed):
    """Bytes sent plus bytes saved, summed over all ranks, equal the bytes sent without encoding."""

    def program(comm):
        comm.allreduce(np.ones(count, np.float32), algorithm=algorithm or "round_robin")
        dense = comm.stats(reset=True).of("allreduce")
        comm.allreduce(data(comm.rank, count), wire=wire, algorithm=algorithm or "round_robin")
        return dense, comm.stats().of("allreduce")

    # summed over all ranks, because the size of one rank's block changes with the number of
    # segments
    sent = would_have_sent = 0
    for dense, coded in threads.run(size, program, config=Config(shared_memory="off", stats=timed)):
        assert dense.bytes_saved == 0 and dense.seconds_encoding == 0
        sent += dense.bytes_sent
        would_have_sent += coded.bytes_sent + coded.bytes_saved
        assert (coded.seconds_encoding > 0) == timed
    assert would_have_sent == sent


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("wire", FORMATS, ids=str)
def test_infinities_reach_all_and_are_not_kept(wire, bad):
    def program(comm):
        feedback = Feedback(5000)
        x = data(comm.rank, 5000)
        if comm.rank == 1:
            x[777] = bad
        first = comm.allreduce(x, wire=wire, feedback=feedback)
        second = comm.allreduce(data(comm.rank, 5000, 1), wire=wire, feedback=feedback)
        return np.isfinite(first).all(), np.isfinite(second).all(), np.isfinite(feedback.residual).all()

    assert threads.run(3, program, config=MESSAGES) == [(False, True, True)] * 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c, x: c.allreduce(x, algorithm="ring", wire="int8"), "partial sums"),
        (lambda c, x: c.allreduce(x, ringcomm.Max, wire="int8"), "sums and averages"),
        (lambda c, x: c.reducescatter(x, wire="onebit"), "averages of allreduce"),
        (lambda c, x: c.allreduce(x, wire="int8", feedback=Feedback(3)), "feedback has 3 elements"),
        (lambda c, x: c.allreduce(x, wire="int9"), "known: "),
    ],
)
def test_refusals(call, words):
    def program(comm):
        x = np.ones(4096, np.float32)
        with pytest.raises(ValueError, match=words):
            call(comm, x)
        return comm.allreduce(x)[0]

    assert threads.run(3, program, config=MESSAGES) == [3, 3, 3]


def test_ranks_that_ask_for_different_formats_are_told():
    def program(comm):
        x = np.ones(40_000, np.float32)
        with pytest.raises(ringcomm.MismatchError, match=r"topk\(ratio=0.0[12]\)"):
            comm.allreduce(x, wire=Compression.topk(0.01 * (1 + comm.rank)))
        return comm.allreduce(x)[0]

    assert threads.run(2, program, config=MESSAGES) == [2, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Compression.int8(group=33),
        lambda: Compression.int8(group=4096),
        lambda: Compression.topk(0),
        lambda: Compression.topk(1.5),
        lambda: Compression.topk(0.1, values="fp8"),
        lambda: Compression.onebit(mean="three"),
        lambda: Compression.threshold(0.0),
        lambda: Compression.qsgd(bits=3),
        lambda: Compression.int8(min_elements=-1),
        lambda: Compression.topk(momentum=1.0),
        lambda: Compression.powersgd(0),
        lambda: Compression.powersgd(min_compression_rate=0.5),
    ],
)
def test_parameters_that_are_none(make):
    with pytest.raises(ValueError):
        make()


@given(
    size=st.integers(2, 9),
    ranks_per_host=st.integers(1, 3),
    nbytes=st.sampled_from([1 << 20, 25 << 20]),
    link=st.floats(1e-10, 1e-6),
)
@settings(max_examples=40, deadline=None)
def test_int8_pays_where_links_are_slow(size, ranks_per_host, nbytes, link):
    def better(beta):
        network = Config(alpha=5e-5, beta=beta).network()
        hosts = [rank // ranks_per_host for rank in range(size)]
        return predicts_gain(Compression.int8.code, hosts, network, nbytes, memory=True)

    several = size > ranks_per_host
    assert better(1e-7) == several and not better(1e-13)  # 80 Mbit/s, and far more than any link
    assert better(link) <= better(10 * link)
    assert Compression.auto.resolve(True) == Compression.int8 and Compression.auto.resolve(False) is None


def test_powersgd_is_for_gradients_that_it_shrinks():
    wire = Compression.powersgd(4)
    assert wire.fits((300, 40, 10)) and not wire.fits((5, 300)) and not wire.fits((4000,))
    assert Compression.powersgd(2, min_compression_rate=1, min_elements=1).fits((10, 10))
    with pytest.raises(ValueError, match="for the gradients of DistributedOptimizer"):
        threads.run(2, lambda comm: comm.allreduce(np.ones(4, np.float32), wire=wire))


def test_formats_are_values():
    assert Compression.topk(0.01) == Compression.topk(ratio=0.01) != Compression.topk(0.02)
    assert str(Compression.topk(0.02)) == "topk(ratio=0.02)" and "stochastic" in str(Compression.qsgd(bits=4))
    with pytest.raises(TypeError):
        Compression.topk(0.1, "bf16", 0.5, 1.0, 3)
    rule = {"*.embed.*": Compression.ternary, "head.*": None, "*": Compression.int8}
    assert choose(rule, "a.embed.b", None) == Compression.ternary and choose(rule, "head.w", None) is None
    assert choose(rule, "body", None) == Compression.int8 == choose(lambda name, p: Compression.int8, "x", None)
    assert (
        choose({"a": Compression.int4}, "b", None) is None and choose(Compression.int4, "b", None) is Compression.int4
    )
