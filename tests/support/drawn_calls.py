"""The choices that tests of ordered calls draw from, and the comparison of their results."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from reference import DTYPES

import ringcomm

CONFIGS = [ringcomm.Config(shared_memory=how) for how in ("off", "auto")]
MOVED = [*DTYPES, np.dtype([("a", "i2"), ("b", "f8")]), np.dtype("M8[s]")]

sizes = st.integers(1, 9)
configs = st.sampled_from(CONFIGS)
seeds = st.integers(0, 99)
rows_of_ranks = st.lists(st.sampled_from([0, 1, 2, 7, 500]), min_size=9, max_size=9)


def random_bytes(dtype, shape, *seed):
    if dtype.kind == "b":
        return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).view(dtype).reshape(shape)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def both(comm, call, *arguments, **named):
    """Returns the results of a call and of its non-blocking form, which must be equal."""
    result = getattr(comm, call)(*arguments, **named)
    later = getattr(comm, f"i{call}")(*arguments, **named).wait()
    assert (later is None) == (result is None) and (result is None or same(result, later))
    return result
