"""Waiting ranks report operation, time and missing ranks; they fail after a limit, if set."""

from __future__ import annotations

import re
import time

import mpi_case
import numpy as np
import pytest

import ringcomm


def late(absent, shared):
    """One rank submits 1.5 s late. `shared`: it waits for another operation of all ranks."""
    ringcomm.init()
    ringcomm.barrier()
    other = ringcomm.allreduce_async(np.ones(1), name="other") if shared else None
    if ringcomm.rank() == absent:
        time.sleep(1.5)
    first = ringcomm.allreduce_async(np.ones(1), name="first late")
    second = ringcomm.allreduce_async(np.ones(1), name="second late")
    for handle in (first, second, other):
        if handle is not None:
            assert handle.wait()[0] == 1
    ringcomm.barrier()


@pytest.mark.parametrize("absent", [0, 2])
def test_a_warning_names_tensors_times_and_ranks(absent):
    result = mpi_case.run(3, late, absent, False, variables={"RINGCOMM_STALL_WARN_SECONDS": "0.6"})
    if absent == 0:  # the coordinator sleeps, so the other ranks only know that it may be among the missing ranks
        for rank in (1, 2):
            assert f"ringcomm: rank {rank} reports operations that are waiting for other ranks:" in result.text, (
                result.text
            )
        assert result.text.count("'allreduce.first late' for 0 s") >= 2
        assert "if it reports nothing, it has not submitted them itself" in result.text
        return
    assert "ringcomm: rank 0 reports operations that are waiting for other ranks:" in result.text, result.text
    for word in ("first", "second"):
        assert re.search(rf"'allreduce\.{word} late' for 0 s: submitted by ranks 0, 1, not by rank 2\n", result.text), (
            result.text
        )


def test_no_warning_when_switched_off_or_soon_enough():
    for seconds in ("0", "60"):
        result = mpi_case.run(2, late, 1, False, variables={"HOROVOD_STALL_CHECK_TIME_SECONDS": seconds})
        assert "waiting for" not in result.text


def given_up(absent):
    ringcomm.init()
    ringcomm.barrier()
    if ringcomm.rank() != absent:
        try:
            ringcomm.allreduce(np.ones(1), name="never")
        except ringcomm.RankLeftError as error:
            mpi_case.say("given up:", error)
            assert "never" in str(error) and "cancelled" in str(error)
        else:
            raise AssertionError
    else:
        time.sleep(3)  # long after the other ranks have failed, and long before they abandon the next operation
        try:
            ringcomm.allreduce(np.ones(1), name="never")
        except ringcomm.RankLeftError:
            pass
        else:
            raise AssertionError
    ringcomm.allreduce(np.ones(1), name="goes on")


def test_the_shutdown_threshold():
    result = mpi_case.run(3, given_up, 2, variables={"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"})
    lines = result.lines("given up:")
    assert len(lines) == 2 and all("rank 2 has not submitted it" in line for line in lines), result.text


def leaver():
    ringcomm.init()
    ringcomm.barrier()
    if ringcomm.rank() == 1:
        ringcomm.shutdown()
        time.sleep(1)
        return
    try:
        ringcomm.allreduce(np.ones(1), name="needs all")
    except ringcomm.RankLeftError as error:
        mpi_case.say("left:", error)


def test_a_rank_that_has_left_for_good_is_named_at_once():
    result = mpi_case.run(3, leaver, variables={"RINGCOMM_STALL_WARN_SECONDS": "30"})
    lines = result.lines("left:")
    assert len(lines) == 2 and all("needs all" in line and "rank 1 has left" in line for line in lines), result.text
    assert "waiting for" not in result.text


def ordered(algorithm):
    comm = ringcomm.Communicator()
    comm.barrier()
    if comm.rank == 1:
        time.sleep(1.6)
    assert comm.allreduce(np.ones(4), algorithm=algorithm, name="in order")[0] == 3
    comm.close()


@pytest.mark.parametrize("memory, who", [("on", "rank 1 "), ("off", "at least one rank ")])
def test_ordered_calls_warn_too(memory, who):
    variables = {"RINGCOMM_STALL_WARN_SECONDS": "0.5", "RINGCOMM_SHARED_MEMORY": memory}
    result = mpi_case.run(3, ordered, None if memory == "on" else "ring", variables=variables)
    for rank in (0, 2):
        lines = [line for line in result.lines(f"ringcomm: rank {rank} has been waiting ") if "'in order'" in line]
        words = f" s in allreduce 'in order'; {who}has not called it yet"
        assert 1 <= len(lines) <= 5 and all(line.endswith(words) for line in lines), result.text
    assert "rank 1 has been waiting" not in result.text


def never_meet() -> None:
    """Simulates different numbers of batches: one rank has left the loop, another has not."""
    import ringcomm

    ringcomm.init()
    rank = ringcomm.rank()
    for step in range(2 if rank == 0 else 4):
        if step == 2:
            break
        ringcomm.allreduce(np.ones(3), name=f"gradient {step}")
    try:
        ringcomm.allreduce(np.ones(3), name="accuracy" if rank == 0 else "gradient 2")
    except ringcomm.MismatchError as error:
        print(f"rank {rank}: {error}", flush=True)
    assert ringcomm.allreduce(np.ones(3), name="after", op=ringcomm.Sum)[0] == ringcomm.size()


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_can_never_meet_get_an_error(ranks: int) -> None:
    result = mpi_case.run(ranks, never_meet, variables={"RINGCOMM_STALL_WARN_SECONDS": "0.3"})
    lines = result.lines("rank ")
    assert len(lines) == ranks, result.text
    for line in lines:
        assert "every rank waits" in line and ".accuracy'" in line and ".gradient 2'" in line, line
