"""Traces compute the all-reduce, with the messages of the schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm._src.core import _core
from ringcomm.algorithms import combine, copy, receive, reduce, send, trace

BUILT_IN = [a.name for a in _core.algorithms() if a.collective == "allreduce"]
OPS = {
    ringcomm.Sum: np.add,
    ringcomm.Product: np.multiply,
    ringcomm.Min: np.minimum,
    ringcomm.Max: np.maximum,
    ringcomm.BAND: np.bitwise_and,
    ringcomm.BOR: np.bitwise_or,
    ringcomm.BXOR: np.bitwise_xor,
}


def star(rank, size):
    """Rank 0 needs a round for each peer; the other ranks have one round."""
    if rank == 0:
        return [*(reduce(peer, 0) for peer in reversed(range(1, size))), [send(peer, 0) for peer in range(1, size)]]
    return [send(0, 0), receive(0, 0)]


def with_scratch(rank, size):
    others = [peer for peer in range(size) if peer != rank]
    exchange = [step for i, peer in enumerate(others) for step in (send(peer, 0), receive(peer, 2 + i))]
    ordered = [1 if q == rank else 2 + others.index(q) for q in range(size)]
    return [[*exchange, copy(0, 1), *(combine(q, ordered[0]) for q in ordered[1:]), copy(ordered[0], 0)]]


ringcomm.register_algorithm("trace_star", star, blocks=1)
ringcomm.register_algorithm("trace_scratch", with_scratch, blocks=1, temps=lambda size: [0] * size)


@given(
    st.sampled_from([*BUILT_IN, "butterfly", "trace_star", "trace_scratch"]),
    st.integers(1, 9),
    st.sampled_from([(0,), (1,), (7,), (24,), (5, 3)]),
    st.sampled_from(list(OPS)),
)
def test_a_trace_ends_with_the_allreduce(name, size, shape, op):
    inputs = [np.random.default_rng(rank).integers(-3, 4, shape) for rank in range(size)]
    kept = [x.copy() for x in inputs]
    found = trace(name, inputs, op)
    expected = inputs[0]
    for x in inputs[1:]:
        expected = OPS[op](expected, x)
    for first, last, given_array, before in zip(found.buffers[0], found.buffers[-1], inputs, kept, strict=True):
        np.testing.assert_array_equal(last, expected)
        np.testing.assert_array_equal(first, before)
        np.testing.assert_array_equal(given_array, before)
    assert len(found.messages) == len(found.buffers) - 1 == len(found.blocks) - 1


@given(st.sampled_from(BUILT_IN), st.integers(2, 9))
def test_messages_are_those_of_the_price(name, size):
    """The busiest rank's bytes and messages are those that the pricer counts."""
    count = 8 * size * 9
    found = trace(name, [np.zeros(count, np.int8)] * size)
    price = _core.price(
        [_core.schedule("allreduce", name, rank, size) for rank in range(size)], count, _core.Network(*[1.0] * 8)
    )
    sent = [[m for row in found.messages for m in row if m.sender == rank] for rank in range(size)]
    assert len(found.messages) == price.rounds
    assert max(map(len, sent)) == price.messages
    assert max(sum(m.nbytes for m in own) for own in sent) == pytest.approx(price.bytes, abs=size)
    assert all(m.received == i for i, row in enumerate(found.messages) for m in row)


def test_the_operand_order_is_that_of_the_communicator():
    """Floating-point sums have the same bits as those of a communicator."""
    inputs = [np.random.default_rng(rank).standard_normal(50) for rank in range(5)]
    for name in BUILT_IN:
        found = trace(name, inputs)
        config = ringcomm.Config(shared_memory="off")
        results = ringcomm.threads.run(
            5, lambda comm, name=name: comm.allreduce(inputs[comm.rank], algorithm=name), config=config
        )
        for traced, result in zip(found.buffers[-1], results, strict=True):
            assert traced.tobytes() == result.tobytes(), name


def test_refusals():
    two = [np.zeros(2), np.zeros(2)]
    for name, arrays, op in (
        ("rign", two, ringcomm.Sum),
        ("ring", [], ringcomm.Sum),
        ("ring", [np.zeros(2), np.zeros(3)], ringcomm.Sum),
        ("ring", [np.zeros(2), np.zeros(2, int)], ringcomm.Sum),
        ("ring", two, ringcomm.Average),
        ("ring", two, "no op"),
    ):
        with pytest.raises(ValueError):
            trace(name, arrays, op)
