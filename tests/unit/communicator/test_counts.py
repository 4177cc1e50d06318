"""Counts on which ranks disagree: every rank raises the same MismatchError before data moves.

Tests every call and route, and that the next call works."""

from __future__ import annotations

from unittest import mock

import mpi_case
import numpy as np
import pytest
from drawn_calls import CONFIGS, configs, same, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads
from ringcomm._src.platform import bootstrap

sizes = st.integers(2, 5)
scales = st.sampled_from([1, 50, 3000])  # small: in messages of counts; medium: in mailboxes; large: in segments


def matrix_of(data, size, scale):
    """Returns the rows that each rank sends to each rank; in some cases equal blocks."""
    entries = st.one_of(st.just(1), st.integers(0, 3))
    rows = st.one_of(st.integers(0, 3).map(lambda n: [n] * size), st.lists(entries, min_size=size, max_size=size))
    return np.array(data.draw(st.lists(rows, min_size=size, max_size=size))) * scale


def error_of(call):
    with pytest.raises(ringcomm.MismatchError) as caught:
        call()
    return str(caught.value), caught.value.ranks


EXCHANGES = {
    "alltoallv": lambda comm, x, sent, received: comm.alltoallv(x, sent, received),
    "ialltoallv": lambda comm, x, sent, received: comm.ialltoallv(x, sent, received).wait(),
    "ialltoall": lambda comm, x, sent, received: comm.ialltoall(x, sent, received).wait(),
    "alltoallv_init": lambda comm, x, sent, received: comm.alltoallv_init(x, sent, received).start().wait(),
}


@given(sizes, configs, st.sampled_from(sorted(EXCHANGES)), scales, st.sampled_from([(), (3,)]), st.data())
@settings(max_examples=80, deadline=None)
def test_exchanges(size, config, call, scale, tail, data):
    sent = matrix_of(data, size, scale)
    expected = sent.copy()
    ranks = st.integers(0, size - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        expected[data.draw(ranks), data.draw(ranks)] += 1
    wrong = np.argwhere(sent != expected)

    def program(comm):
        me = comm.rank
        x = np.full((sent[me].sum(), *tail), me)
        said = error_of(lambda: EXCHANGES[call](comm, x, sent[me], expected[:, me]))
        got = EXCHANGES[call](comm, x, sent[me], sent[:, me])
        assert same(got, np.concatenate([np.full((n, *tail), rank) for rank, n in enumerate(sent[:, me])]))
        return said

    (text, involved), *others = threads.run(size, program, config=config)
    assert all(other == (text, involved) for other in others)
    assert set(involved) == set(wrong.ravel().tolist())
    unit = "row" if tail else "element"
    for sender, receiver in wrong.tolist():
        n, to = sent[sender, receiver], "itself, but" if sender == receiver else f"rank {receiver}, which"
        told = f"rank {sender} sends {n} {unit}{'' if n == 1 else 's'} to {to} expects {expected[sender, receiver]}"
        assert told in text


LISTED = {
    "allgather": lambda comm, rows, x: comm.allgather(x[: rows[comm.rank]], rows),
    "allgatherv": lambda comm, rows, x: comm.allgatherv(x[: rows[comm.rank]], rows),
    "iallgatherv": lambda comm, rows, x: comm.iallgatherv(x[: rows[comm.rank]], rows).wait(),
    "gatherv": lambda comm, rows, x: comm.gatherv(x[: rows[comm.rank]], rows, comm.size - 1),
    "igatherv": lambda comm, rows, x: comm.igatherv(x[: rows[comm.rank]], rows).wait(),
    "gatherv_init": lambda comm, rows, x: comm.gatherv_init(x[: rows[comm.rank]], rows).start().wait(),
    "scatterv": lambda comm, rows, x: comm.scatterv(x[: sum(rows)], rows, comm.size - 1),
    "iscatterv": lambda comm, rows, x: comm.iscatterv(x[: sum(rows)], rows).wait(),
    "reduce_scatter": lambda comm, rows, x: comm.reduce_scatter(x[: sum(rows)], rows),
    "ireduce_scatter": lambda comm, rows, x: comm.ireduce_scatter(x[: sum(rows)], rows).wait(),
    "neighbours": lambda comm, rows, x: comm.neighbours("ring").alltoall(x[: rows[0] * min(2, comm.size - 1)], rows[0]),
    "gather": lambda comm, rows, x: comm.gather(x[: rows[0]], 0, name="both"),
    "igather": lambda comm, rows, x: comm.igather(x[: rows[0]]).wait(),
}


@given(sizes, configs, st.sampled_from(sorted(LISTED)), scales, seeds, st.data())
@settings(max_examples=80, deadline=None)
def test_lists_of_counts(size, config, call, scale, seed, data):
    """Lists that every rank passes in full."""
    right = (np.random.default_rng(seed).integers(0, 3, size) * scale).tolist()
    odd, entry = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    if call in ("neighbours", "gather", "igather"):
        entry = 0  # the only entry of these lists

    def program(comm):
        x = np.zeros((3 * scale * size + 1, 2), np.float32)
        rows = list(right)
        rows[entry] += comm.rank == odd
        said = error_of(lambda: LISTED[call](comm, rows, x))
        LISTED[call](comm, right, x)
        return said

    told = threads.run(size, program, config=config)
    assert all(one == told[0] for one in told)
    assert f"rank {odd}" in told[0][0] and "rows" in told[0][0]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", ["", "given"])
@pytest.mark.parametrize("call", ["gather", "gatherv", "scatter", "scatterv", "broadcast", "reduce"])
def test_roots(call, name, config):
    def program(comm):
        x, counts = np.zeros(6, np.float32), [6, 6, 6] if call == "gatherv" else [2, 2, 2]
        arguments = (x, counts) if call.endswith("v") else (x,)
        said = error_of(lambda: getattr(comm, call)(*arguments, root=comm.rank // 2, name=name))
        getattr(comm, call)(*arguments, root=1, name=name)
        return said

    told = threads.run(3, program, config=config)
    assert all(one == told[0] for one in told)
    assert "root" in told[0][0] or "to rank 0" in told[0][0] or "from rank 0" in told[0][0]


def exchange_over_mpi(host_of):
    from mpi4py import MPI

    mine = (f"host{host_of[MPI.COMM_WORLD.rank]}",)
    with mock.patch.object(bootstrap, "host_key", lambda: mine):
        comm = ringcomm.Communicator()
    me, size = comm.rank, comm.size

    def disagree(call, sent, expected):
        x = np.zeros((sent[me].sum(), 2))
        said = error_of(lambda: call(comm, x, sent[me], expected[:, me]))
        assert len(call(comm, x, sent[me], sent[:, me])) == sent[:, me].sum()
        return said

    said = []
    for scale in (1, 5000):
        sent = np.arange(size * size).reshape(size, size) * scale
        expected = sent.copy()
        expected[0, 1] += 1
        for call in EXCHANGES.values():
            said.append(disagree(call, sent, expected))
            assert f"rank 0 sends {scale} row{'s' * (scale > 1)} to rank 1, which expects {scale + 1}." in said[-1][0]
    assert all(one == said for one in MPI.COMM_WORLD.allgather(said))
    comm.close()


@pytest.mark.parametrize("memory", ["auto", "off"])
@pytest.mark.parametrize("host_of", [(0, 0, 0), (0, 1, 0), (0, 1, 2)])
def test_over_mpi(host_of, memory):
    mpi_case.run(3, exchange_over_mpi, host_of, variables={"RINGCOMM_SHARED_MEMORY": memory})
