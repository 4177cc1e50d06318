"""Random programs of a communicator's calls, compared with NumPy: on ranks as threads and under mpiexec.

A program is a list of steps that every rank runs: blocking, non-blocking and persistent collectives of every kind,
messages, groups split and closed, calls on which ranks disagree. A step is plain data rather than a rule of hypothesis'
RuleBasedStateMachine, because every rank has to run it in its own thread or process: a rule runs in one thread, and
ranks that block in turn would have to be driven by it. Lists shrink as well, and a seed gives the same program in jobs
under mpiexec.
"""

from __future__ import annotations

import random

import mpi_case
import model_ranks
import pytest
from drawn_calls import CONFIGS
from hypothesis import given, settings
from hypothesis import strategies as st
from model_calls import Step, drawn_step

import ringcomm
from ringcomm import threads

SMALL_PIECES = ringcomm.Config(shared_memory="off", segment_bytes=64, window=2)
configs = st.sampled_from([*CONFIGS, SMALL_PIECES])


@st.composite
def steps(draw: st.DrawFn) -> Step:
    return drawn_step(lambda n: draw(st.integers(0, n - 1)))


def seeded(seed: int, length: int) -> list[Step]:
    rng = random.Random(seed)
    return [drawn_step(rng.randrange) for _ in range(length)]


@given(st.sampled_from([2, 3, 1, 4, 5, 7, 9]), configs, st.lists(steps(), min_size=1, max_size=25))
@settings(max_examples=100)
def test_programs(size, config, program):
    threads.run(size, model_ranks.run, program, config=config)
