"""Random programs of a communicator's calls, compared with NumPy, on threads and under mpiexec.

A program is a list of steps that every rank runs: blocking, non-blocking and persistent collectives
of every kind, messages, groups split and closed, calls on which ranks disagree. A step is plain
data rather than a rule of hypothesis' RuleBasedStateMachine, because every rank has to run it in
its own thread or process: a rule runs in one thread, and ranks that block in turn would have to be
driven by it. Lists shrink as well, and a seed gives the same program in jobs under mpiexec.
"""

from __future__ import annotations

import random
from unittest import mock

import drawn_calls
import model_ranks
import mpi_case
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_calls import Step, drawn_step

import ringcomm
from ringcomm import threads
from ringcomm._src.platform import bootstrap

CONFIGS = [*drawn_calls.CONFIGS, ringcomm.Config(shared_memory="off", segment_bytes=64, window=2)]
SIZES = [2, 3, 4, 1, 5, 3, 7, 2, 9, 4]
configs = st.sampled_from(CONFIGS)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    return drawn_step(lambda n: draw(st.integers(0, n - 1)))


def seeded(seed: int, length: int) -> list[Step]:
    rng = random.Random(seed)
    return [drawn_step(rng.randrange) for _ in range(length)]


sizes = st.sampled_from([2, 3, 1, 4, 5, 7, 9])


@given(sizes, configs, st.lists(steps(), min_size=1, max_size=30))
@settings(max_examples=80)
def test_drawn_programs(size, config, program):
    """Runs drawn programs; hypothesis shrinks programs that fail."""
    threads.run(size, model_ranks.run, program, config=config)


def run_seeds(seeds, length):
    for seed in seeds:
        size, config = SIZES[seed % len(SIZES)], CONFIGS[seed // len(SIZES) % len(CONFIGS)]
        try:
            threads.run(size, model_ranks.run, seeded(seed, length), config=config)
        except BaseException as error:
            error.add_note(f"seed {seed}: {size} ranks, {config}")
            raise


def test_long_programs():
    run_seeds(range(20), 40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_programs():
    run_seeds(range(100, 5100), 25)


# ---- on MPI's ranks --------------------------------------------------------------------------------------------------
def run_on_mpi(first, last, length):
    """Runs by messages, in shared memory, and with two ranks on each of several simulated hosts."""
    from mpi4py import MPI

    for memory, host in (("off", 0), ("auto", 0), ("auto", MPI.COMM_WORLD.rank // 2)):
        config = ringcomm.Config(shared_memory=memory)
        key = (f"host{host}",)
        with mock.patch.object(bootstrap, "host_key", lambda key=key: key):
            comm = ringcomm.Communicator(config=config)
        with comm:
            for seed in range(first, last):
                model_ranks.run(comm, seeded(seed, length))
    mpi_case.say("programs ran")


@pytest.mark.parametrize("size", [2, 3])
def test_programs_on_mpi(size):
    assert len(mpi_case.run(size, run_on_mpi, 0, 8, 30).lines("programs ran")) == size


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_many_programs_on_mpi(size):
    assert len(mpi_case.run(size, run_on_mpi, 100, 600, 30, limit=1700).lines("programs ran")) == size
