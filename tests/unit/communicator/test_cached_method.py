"""The methods of a communicator that look in the call cache first: arguments, and use as functions."""

from __future__ import annotations

import functools
import inspect
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads as rank_threads

SHARED = ringcomm.Config(shared_memory="auto")
VALUES = {
    "x": st.sampled_from([np.float32, np.int32, None]),
    "out": st.sampled_from([None, "x", (6,), (3,)]),
    "op": st.sampled_from([ringcomm.Sum, ringcomm.Max, ringcomm.Average, "sum", 1, None]),
    "root": st.sampled_from([0, 0, np.int64(0), 1, True, "0"]),
    "rows": st.sampled_from([None, [6], (6,), [6, 6], []]),
    "prescale_factor": st.sampled_from([1.0, 2, np.float32(0.5), None]),
    "wire": st.sampled_from([None, "bfloat16", "unknown"]),
    "algorithm": st.sampled_from([None, "ring", ""]),
    "name": st.sampled_from(["", "named", None]),
    "feedback": st.sampled_from([None, ""]),
    "splits": st.sampled_from([None, ""]),
    "unknown": st.just(None),
}
METHODS = (
    "allreduce",
    "reduce",
    "broadcast",
    "allgather",
    "reducescatter",
    "alltoall",
    "gather",
    "scatter",
    "scan",
    "exscan",
)


@st.composite
def given_calls(draw):
    """Draws a method, values by position, and values by name; names may not be interned."""
    method = draw(st.sampled_from(METHODS))
    names = list(inspect.signature(getattr(ringcomm.Communicator, method)).parameters)[1:]
    known = [name for name in names if name in VALUES]
    positional = names[: draw(st.integers(0, 4))]
    named = draw(st.lists(st.sampled_from([*known, *known, "unknown"]), unique=True, max_size=3))
    if "x" not in positional and draw(st.integers(0, 9)):
        named = ["x", *(name for name in named if name != "x")]
    copy = draw(st.sampled_from([str, lambda name: f"{name} "[:-1]]))
    return (
        method,
        [draw(VALUES.get(name, st.none())) for name in positional],
        {copy(name): draw(VALUES[name]) for name in named},
    )


def outcome(call, method, positional, named):
    """Calls with new arrays. Returns the result or the error."""
    names = list(inspect.signature(getattr(ringcomm.Communicator, method)).parameters)[1:]
    values = dict(zip(names, positional, strict=False)) | named
    x = None if values.get("x") is None else np.arange(6).astype(values["x"])
    out = values.get("out")
    out = x if out == "x" else None if out is None else np.zeros(out, values.get("x"))
    arrays = {"x": x, "out": out}
    try:
        result = call(
            *(arrays.get(name, value) for name, value in zip(names, positional, strict=False)),
            **{name: arrays.get(name, value) for name, value in named.items()},
        )
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)
    return result is x, result is out, None if result is None else (result.dtype, result.tolist())


@given(st.lists(given_calls(), min_size=1, max_size=8))
def test_arguments_may_be_given_in_every_way(ways):
    """A cached method takes and refuses the arguments that its Python function does."""

    def program(comm):
        pairs = []
        for method in METHODS:  # the cache has an entry for calls that differ only in an argument
            getattr(comm, method)(np.zeros(6, np.float32))
        for method, positional, named in ways:
            general = functools.partial(inspect.unwrap(getattr(ringcomm.Communicator, method)), comm)
            pairs += [
                (outcome(general, method, positional, named), outcome(getattr(comm, method), method, positional, named))
                for _ in range(2)
            ]
        return pairs

    (pairs,) = rank_threads.run(1, program, config=SHARED)
    for general, cached in pairs:
        assert general == cached


@pytest.mark.parametrize("size", [1, 2, 5])
def test_numbers_of_an_interrupted_exchange_are_not_used(size):
    def program(comm):
        x = np.full((size, 2), comm.rank)
        for name in ("", "named", ""):  # "": from the cache, after the first call
            comm._exchanged = [7] * size
            assert np.array_equal(comm.allgather(x, name=name)[::size, 0], np.arange(size))
            comm._exchanged = [7] * size
            assert np.array_equal(comm.alltoall(x, name=name)[:, 0], np.arange(size))
        return True

    assert rank_threads.run(size, program, config=SHARED) == [True] * size


class Root:
    def __index__(self):
        return 0


@pytest.mark.parametrize("method", ["reduce", "broadcast", "gather", "scatter"])
def test_a_root_may_be_any_integer(method):
    def program(comm):
        call, x = getattr(comm, method), np.arange(4.0) + comm.rank
        return [repr(call(x, root)) for root in (0, Root(), np.uint8(0), 0)]

    for results in rank_threads.run(2, program, config=SHARED):
        assert len(set(results)) == 1


def test_methods_are_pickled_and_referenced_as_functions_are():
    method = ringcomm.Communicator.allreduce
    assert pickle.loads(pickle.dumps(method)) is method
    assert weakref.ref(method)() is method
    assert "allreduce" in repr(method) and list(inspect.signature(method).parameters)[:2] == ["self", "x"]
