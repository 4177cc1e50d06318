"""Ranks that disagree: all raise one typed exception with each value; then calls work."""

from __future__ import annotations

from unittest import mock

import mpi_case
import numpy as np
import pytest

import ringcomm
from ringcomm import threads
from ringcomm._src.platform import bootstrap

F, X = np.float32, np.ones(4, np.float32)

# The call of one rank in place of comm.allreduce(X, Sum), and words of the expected message.
ODD_ORDERED = {
    "dtype": (lambda comm: comm.allreduce(X.astype(np.float64)), ("float32", "float64")),
    "width": (lambda comm: comm.allreduce(np.ones(4, np.int32)), ("float32", "int32")),
    "count": (lambda comm: comm.allreduce(np.ones(5, F)), ("4", "5")),
    "shape": (lambda comm: comm.allreduce(np.ones((2, 2), F)), ("(4,)", "(2, 2)")),
    "op": (lambda comm: comm.allreduce(X, ringcomm.Max), ("sum", "max")),
    "algorithm": (lambda comm: comm.allreduce(X, algorithm="tree"), ("tree",)),
    "scale": (lambda comm: comm.allreduce(X, prescale_factor=2.0), ("scale",)),
    "wire": (lambda comm: comm.allreduce(X, wire="float16"), ("float16",)),
    "name": (lambda comm: comm.allreduce(X, name="other"), ("other",)),
    "collective": (lambda comm: comm.broadcast(X), ("allreduce", "broadcast")),
    "barrier": (lambda comm: comm.barrier(), ("allreduce", "barrier")),
    "gather": (lambda comm: comm.allgather(X), ("allreduce", "allgather")),
    "reduce": (lambda comm: comm.reduce(X), ("allreduce", "reduce")),
}


@pytest.mark.parametrize("memory", ["on", "off"])
@pytest.mark.parametrize("odd_rank", [0, 2])
@pytest.mark.parametrize("odd", ODD_ORDERED)
def test_ordered_calls(odd, odd_rank, memory):
    call, words = ODD_ORDERED[odd]
    usual = "usual" if odd == "name" else ""  # names are compared only if both ranks give one

    def program(comm):
        with pytest.raises(ringcomm.MismatchError) as caught:
            call(comm) if comm.rank == odd_rank else comm.allreduce(X, name=usual)
        with pytest.raises(ringcomm.MismatchError, match="root"):
            comm.broadcast(X, comm.rank % 2)
        return str(caught.value), comm.allreduce(X).tolist()

    results = threads.run(3, program, config=ringcomm.Config(shared_memory=memory))
    messages = {message for message, _ in results}
    assert len(messages) == 1, messages
    message = messages.pop()
    assert all(word in message for word in words), message
    assert "rank" in message and str(odd_rank) in message
    assert all(after == [3.0] * 4 for _, after in results)


@pytest.mark.parametrize("call", ["allgather", "alltoall", "reducescatter"])
def test_trailing_dimensions(call):
    def program(comm):
        with pytest.raises(ringcomm.MismatchError):
            getattr(comm, call)(np.ones((2, 3 + comm.rank), F))
        return getattr(comm, call)(np.ones((2, 3), F)).shape[1]

    assert threads.run(2, program) == [3, 3]


def test_closing_while_others_call():
    def program(comm):
        with pytest.raises(ringcomm.MismatchError, match="close"):
            comm.close() if comm.rank == 1 else comm.allreduce(X)
        with pytest.raises(ringcomm.ShutDownError if comm.rank == 1 else ringcomm.RankLeftError):
            comm.allreduce(X)
        comm._leave("test is over")

    threads.run(3, program)


@pytest.mark.parametrize("memory", ["on", "off"])
@pytest.mark.parametrize("started", [0, 1])
def test_closing_while_others_wait_in_a_non_blocking_call(memory, started):
    """`started`: calls that rank 1 has begun, without waiting; other ranks began one more."""

    def program(comm):
        calls = [comm.iallreduce(X) for _ in range(started)]
        if comm.rank != 1:
            with pytest.raises(ringcomm.RankLeftError, match="rank 1"):
                comm.iallreduce(X).wait()
        comm.close()
        return [call.wait().tolist() for call in calls]

    config = ringcomm.Config(shared_memory=memory)
    assert threads.run(3, program, config=config) == [[[3.0] * 4] * started] * 3


def a_rank_of_a_host_leaves():
    """Rank 3 of 4 ranks on 2 simulated hosts leaves. Errors must not name its number on its host."""
    from mpi4py import MPI

    key = (f"host{MPI.COMM_WORLD.rank % 2}",)
    with mock.patch.object(bootstrap, "host_key", lambda: key):
        comm = ringcomm.Communicator()
    if comm.rank == 3:
        comm._leave("the test is over")
        return
    with pytest.raises(ringcomm.RankLeftError, match="rank 3 ") as caught:
        comm.allreduce(X)
    assert caught.value.ranks == (3,)
    comm._leave("the test is over")


def test_errors_between_hosts_name_ranks_of_the_group():
    mpi_case.run(4, a_rank_of_a_host_leaves)


# ---- named, over MPI -------------------------------------------------------------------------------------------------
NAMED = {
    "dtype": ("allreduce(X.astype(np.int64), name='n')", "allreduce(X, name='n')", ("n", "float32", "int64")),
    "shape": ("allreduce(np.ones(3, F), name='n')", "allreduce(X, name='n')", ("n", "(3,)", "(4,)")),
    "rank of shape": ("allreduce(np.ones((2, 2), F), name='n')", "allreduce(X, name='n')", ("(2, 2)", "(4,)")),
    "op": ("allreduce(X, op=ringcomm.Min, name='n')", "allreduce(X, name='n')", ("n", "min", "average")),
    "scale": ("allreduce(X, prescale_factor=3.0, name='n')", "allreduce(X, name='n')", ("n",)),
    "root": ("broadcast(X, 1, name='n')", "broadcast(X, 0, name='n')", ("n", "root")),
    "gathered": ("allgather(np.ones((2, 3)), name='n')", "allgather(np.ones((2, 4)), name='n')", ("n",)),
    "gathered dtype": ("allgather(X, name='n')", "allgather(X.astype(int), name='n')", ("n", "float32", "int64")),
    "scattered": ("reducescatter(np.ones((4, 2)), name='n')", "reducescatter(np.ones((6, 2)), name='n')", ("n",)),
    "swapped": ("alltoall(np.ones((6, 2)), name='n')", "alltoall(np.ones((6, 1)), name='n')", ("n",)),
    "nameless": ("allreduce(np.ones(3, F))", "allreduce(X)", ("(3,)", "(4,)")),
    "group": (
        "grouped_allreduce([X, X], name='n')",
        "grouped_allreduce([X, X[:2]], name='n')",
        ("n.1", "(2,)", "(4,)"),
    ),
    "in place": ("allreduce_(X[:2].copy(), name='n')", "allreduce(X, name='n')", ("n", "(2,)")),
}


def disagree(odd_rank):
    ringcomm.init()
    for title, (odd, usual, words) in NAMED.items():
        try:
            eval(f"ringcomm.{odd if ringcomm.rank() == odd_rank else usual}")
        except ringcomm.MismatchError as error:
            assert all(word in str(error) for word in words), (title, str(error))
            mpi_case.say(f"said {title}: {error}")
        else:
            raise AssertionError(f"{title} was accepted")
        assert ringcomm.allreduce(X, name="n", op=ringcomm.Sum).tolist() == [ringcomm.size()] * 4
    assert issubclass(ringcomm.MismatchError, ringcomm.HorovodInternalError)
    ringcomm.barrier()


@pytest.mark.parametrize(
    "size, odd_rank, variables", [(2, 0, {}), (3, 2, {}), (3, 0, {"RINGCOMM_SHARED_MEMORY": "off"})]
)
def test_named_operations(size, odd_rank, variables):
    result = mpi_case.run(size, disagree, odd_rank, variables=variables)
    said = result.lines("said")
    assert len(said) == size * len(NAMED)
    assert len(set(said)) == len(NAMED), "ranks were told different things"


def a_rank_leaves(early):
    """Rank 1 shuts down. Operations that need it fail; process sets without it still work."""
    ringcomm.init(process_sets=[[0, 2]])
    assert ringcomm.allreduce(X, name="all").tolist() == X.tolist()
    comm = ringcomm.communicator()
    others = next(one for one in ringcomm.global_process_set.session().sets if one.process_set_id == 1)
    if ringcomm.rank() == 1:
        if not early:
            import time

            time.sleep(1.0)
        ringcomm.shutdown()
        return
    for turn in range(2):
        try:
            ringcomm.allreduce(X, name="all")
        except ringcomm.RankLeftError as error:
            assert 1 in error.ranks and "rank 1" in str(error) and "all" in str(error)
        else:
            raise AssertionError(turn)
    try:
        comm.allreduce(X)
    except ringcomm.RankLeftError as error:
        assert 1 in error.ranks
    else:
        raise AssertionError
    assert ringcomm.allreduce(X, op=ringcomm.Sum, process_set=others).tolist() == [2.0] * 4


@pytest.mark.parametrize("variables", [{}, {"RINGCOMM_SHARED_MEMORY": "off"}])
@pytest.mark.parametrize("early", [True, False])
def test_a_rank_that_shuts_down(early, variables):
    mpi_case.run(3, a_rank_leaves, early, variables=variables)


def wrong_rows():
    """A rank expects other rows than a rank sends: all ranks raise; the next call works."""
    ringcomm.init()
    comm = ringcomm.communicator()
    rows = [3] * comm.size
    wrong = [*rows[:-1], 5] if comm.rank == 0 else rows
    x = np.full(3, comm.rank, np.float32)
    with pytest.raises(ringcomm.MismatchError, match="rows"):
        comm.allgather(x, rows=wrong)
    for _ in range(2):  # each rank expects its own number of rows from all ranks
        mine = 2 + (comm.rank == 0)
        with pytest.raises(ringcomm.MismatchError, match="shape"):
            comm.allgather(np.zeros((mine, 3), np.float32), rows=[mine] * comm.size)
    assert comm.allgather(x, rows=rows).tolist() == [r for r in range(comm.size) for _ in range(3)]
    mpi_case.say("fine", comm.rank)


@pytest.mark.parametrize("memory", ["on", "off"])
@pytest.mark.parametrize("size", [2, 3])
def test_rows_that_a_rank_does_not_give(size, memory):
    result = mpi_case.run(size, wrong_rows, variables={"RINGCOMM_SHARED_MEMORY": memory})
    assert len(result.lines("fine")) == size
