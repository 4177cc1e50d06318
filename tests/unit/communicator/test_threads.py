"""ringcomm.threads runs ranks as threads: results, failures, splits."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads

CONFIGS = [ringcomm.Config(shared_memory="on"), ringcomm.Config(shared_memory="off")]


@given(st.integers(1, 9))
def test_results_come_by_rank(size):
    assert threads.run(size, lambda comm, a, b: (comm.rank, comm.size, a + b), 1, 2) == [
        (r, size, 3) for r in range(size)
    ]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("bad", [0, 2])
@pytest.mark.parametrize("call", ["allreduce", "iallreduce", "barrier", "allgather", "split"])
def test_one_failure_ends_all_and_is_the_one_raised(config, bad, call):
    before = threading.active_count()

    def program(comm):
        comm.barrier()
        if comm.rank == bad:
            raise ZeroDivisionError(f"rank {comm.rank}")
        if call == "split":
            comm.split(0)
        elif call == "barrier":
            comm.barrier()
        else:
            result = getattr(comm, call)(np.ones(10_000))
            if call == "iallreduce":
                result.wait()
        raise AssertionError("the call returned")

    with pytest.raises(ZeroDivisionError, match=f"rank {bad}"):
        threads.run(3, program, config=config)
    assert threading.active_count() <= before + 1  # the worker


def test_impossible_sizes():
    with pytest.raises(ValueError):
        threads.run(0, lambda comm: None)


@given(st.lists(st.tuples(st.sampled_from([None, 0, 1, 5]), st.integers(-2, 2)), min_size=1, max_size=7))
@settings(max_examples=40)
def test_split(choices):
    def program(comm):
        color, key = choices[comm.rank]
        part = comm.split(color, key)
        if part is None:
            return None
        with part:
            return part.rank, part.allgather(np.array([comm.rank])).tolist()

    for rank, result in enumerate(threads.run(len(choices), program)):
        color = choices[rank][0]
        members = sorted((r for r in range(len(choices)) if choices[r][0] == color), key=lambda r: (choices[r][1], r))
        assert result == (None if color is None else (members.index(rank), members))


def test_two_threads_may_not_call_at_once():
    def program(comm):
        errors = []

        def call():
            try:
                comm.barrier()
            except RuntimeError as error:
                errors.append(error)

        if comm.rank == 0:
            others = [threading.Thread(target=call) for _ in range(2)]
            for one in others:
                one.start()
            while not errors:
                pass
            comm.iallreduce(np.ones(1)).wait()
            for one in others:
                one.join()
        else:
            comm.iallreduce(np.ones(1)).wait()
            comm.barrier()
        return len(errors)

    assert threads.run(2, program)[0] == 1


def test_closed_communicators():
    def program(comm):
        with comm.split(0) as part:
            part.barrier()
        for call in (part.barrier, lambda: part.iallreduce(np.ones(1)), lambda: part.split(0)):
            with pytest.raises(ringcomm.ShutDownError, match="closed"):
                call()
        return repr(comm)

    assert threads.run(2, program) == ["<ringcomm.Communicator: rank 0 of 2>", "<ringcomm.Communicator: rank 1 of 2>"]


@pytest.mark.parametrize("call", [ringcomm.init, ringcomm.rank, lambda: ringcomm.allreduce(np.ones(1), name="x")])
def test_functions_that_need_init_name_the_communicator(call):
    """Ranks that are threads have no runtime; the message names what to use instead."""

    def program(comm):
        with pytest.raises(ringcomm.RingcommError, match="Use the communicator") as caught:
            call()
        return f"rank {comm.rank} of 2" in str(caught.value)

    assert threads.run(2, program) == [True, True]
