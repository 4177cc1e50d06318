"""Invalid arguments: each raises an error with its name and value."""

from __future__ import annotations

import difflib
import logging
import re
from pathlib import Path

import mpi_case
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads
from ringcomm._src.base import arguments
from ringcomm._src.config import config
from ringcomm._src.config.config import Config

PACKAGE = Path(ringcomm.__file__).parent
not_integers = st.one_of(
    st.floats(), st.none(), st.booleans(), st.text(max_size=3), st.just(np.float64(1)), st.just([1])
)
CALLS = {
    "root": [
        lambda comm, x, it: comm.broadcast(x, it),
        lambda comm, x, it: comm.reduce(x, it),
        lambda comm, x, it: comm.gather(x, it),
        lambda comm, x, it: comm.gatherv(x, [1], it),
        lambda comm, x, it: comm.scatter(x, it),
        lambda comm, x, it: comm.scatterv(x, [1], it),
        lambda comm, x, it: comm.ibroadcast(x, it),
        lambda comm, x, it: comm.reduce_init(x, it),
        lambda comm, x, it: comm.reduce(x, it, ringcomm.Op.create(lambda a, b: None)),
    ],
    "dest": [lambda comm, x, it: comm.send(x, it), lambda comm, x, it: comm.isend(x, it)],
    "source": [lambda comm, x, it: comm.recv(x, it), lambda comm, x, it: comm.irecv(x, it)],
    "tag": [lambda comm, x, it: comm.send(x, 0, it), lambda comm, x, it: comm.iprobe(0, it)],
    "sendtag": [lambda comm, x, it: comm.sendrecv(x, 0, it, x)],
    "recvtag": [lambda comm, x, it: comm.sendrecv(x, 0, 1, x, 0, it)],
    "counts[0]": [
        lambda comm, x, it: comm.gatherv(x, [it]),
        lambda comm, x, it: comm.scatterv(x, [it]),
        lambda comm, x, it: comm.reduce_scatter(x, [it]),
    ],
    "rows[0]": [lambda comm, x, it: comm.allgather(x, [it])],
    "received_splits[0]": [lambda comm, x, it: comm.alltoallv(x, [1], [it])],
    "key": [lambda comm, x, it: comm.split(0, it)],
}


@given(st.sampled_from(sorted(CALLS)), st.data(), not_integers, st.booleans())
def test_what_is_no_integer(name, data, value, again):
    call = data.draw(st.sampled_from(CALLS[name]))

    def program(comm):
        x = np.ones(1)
        if again and name == "root":
            call(comm, x, 0)  # the call cache stores it
        if value is None and name in ("color", "key"):
            return
        with pytest.raises(TypeError, match=re.escape(f"{name} must be an integer, not {value!r}")):
            call(comm, x, value)

    threads.run(1, program)


@pytest.mark.parametrize("root", [-1, 1, 2**40])
@pytest.mark.parametrize("call", CALLS["root"])
def test_roots_that_are_no_ranks(call, root):
    """Every form of the call refuses them before it submits anything."""

    def program(comm):
        for _ in range(2):
            with pytest.raises(ValueError, match=f"root {root} is not a rank of this communicator of 1"):
                call(comm, np.ones(1), root)
            call(comm, np.ones(1), 0)  # the call cache stores it

    threads.run(1, program)


@given(st.sampled_from([int, np.int8, np.uint64, np.array]), st.integers(0, 1))
def test_every_kind_of_integer(kind, root):
    def program(comm):
        for _ in range(2):
            assert comm.broadcast(np.full(3, float(comm.rank)), kind(root))[0] == root
            assert comm.split(kind(0), kind(comm.rank)).rank == comm.rank

    threads.run(2, program)


def test_colours_are_not_negative():
    def program(comm):
        for color in (-1, -32766):
            with pytest.raises(ValueError, match=f"split: color must be 0 or more, not {color}; None"):
                comm.split(color)
        with pytest.raises(TypeError, match=r"split: color must be an integer, not 0\.4"):
            comm.split(0.4)
        for root in (-1, 1, 2**40):
            with pytest.raises(ValueError, match=f"root {root} is"):
                comm.broadcast(np.ones(3), root)

    threads.run(1, program)


@given(st.sampled_from([field for field, value in vars(Config()).items() if isinstance(value, int)]), not_integers)
def test_options(name, value):
    if isinstance(value, bool) or value in (0, 1):
        return
    with pytest.raises((TypeError, ValueError), match=f"option {name} must be"):
        Config(**{name: value})


@given(st.sampled_from([row["variables"][0] for row in config.options()]), st.integers(0, 30))
def test_a_variable_with_a_slip(name, at):
    """Names the nearest option if one letter is missing."""
    at = len("RINGCOMM_") + at % (len(name) - len("RINGCOMM_"))
    wrong = name[:at] + name[at + 1 :]
    lines = config.unknown_variables({wrong: "1", name: "1", "RINGCOMM_RANK_PROCESS": "3", "RINGCOMM_TEST_JOB": "x"})
    names = [row["variables"][0] for row in config.options()]
    if wrong in names:
        return
    assert len(lines) == 1 and lines[0].startswith(f"{wrong} is not an option of ringcomm; did you mean 'RINGCOMM_"), (
        lines
    )
    assert difflib.get_close_matches(wrong, names, 1)[0] in lines[0] or "RINGCOMM_" in lines[0]


def test_every_variable_in_the_source_is_known():
    known = {row["variables"][0] for row in config.options()} | set(config.OTHER_VARIABLES)
    for path in PACKAGE.rglob("*.py"):
        assert set(re.findall(r'"(RINGCOMM_[A-Z_]*[A-Z])"', path.read_text())) <= known, path


def unknown_variable():
    with ringcomm.Communicator():
        pass


def test_an_unknown_variable_is_named_once():
    result = mpi_case.run(2, unknown_variable, variables={"RINGCOMM_ALGORITM": "ring"}, alone=True)
    assert result.text.count("did you mean 'RINGCOMM_ALGORITHM'?") == 1, result.text


def no_communicators():
    from mpi4py import MPI

    for wrong, error in ((3, TypeError), ("world", TypeError), (MPI.COMM_NULL, ValueError)):
        with pytest.raises(error, match=r"mpi4py communicator|MPI\.COMM_NULL"):
            ringcomm.Communicator(wrong)
    open_ones = [ringcomm.Communicator(MPI.COMM_SELF) for _ in range(3)]
    for comm in open_ones:
        comm.close()


def test_no_communicators():
    mpi_case.run(2, no_communicators)


def test_many_open(monkeypatch, caplog):
    from ringcomm._src.platform import mpi_link

    monkeypatch.setattr(mpi_link, "_many_noted", False)
    monkeypatch.setattr(mpi_link, "_open", [None] * mpi_link.MANY_OPEN)
    link = object.__new__(mpi_link.MpiLink)
    link.rank = 3
    with caplog.at_level(logging.WARNING, "ringcomm"):
        link.note_many_open()
        link.note_many_open()
    assert [record.getMessage()[:37] for record in caplog.records] == ["rank 3 has 100 communicators open, an"]


def test_init_among_threads():
    def program(comm):
        with pytest.raises(ringcomm.RingcommError, match=r"rank \d of 2 of ringcomm.threads.run: .*comm.allreduce"):
            ringcomm.init()

    threads.run(2, program)
    assert not ringcomm.is_initialized()


def test_names_of_mpi4py():
    def program(comm):
        names = {
            "Allreduce": "allreduce",
            "Get_rank": "rank",
            "Get_size": "size",
            "Bcast": "broadcast",
            "Free": "close",
        }
        for theirs, ours in names.items():
            with pytest.raises(AttributeError, match=f"use '{ours}'"):
                getattr(comm, theirs)
        assert not hasattr(comm, "__array__")

    threads.run(1, program)


def test_stats_of_a_name():
    def program(comm):
        comm.allreduce(np.ones(2_000), algorithm="butterfly")
        comm.allreduce(np.ones(200_000), algorithm="butterfly")
        comm.allreduce(np.ones(20), algorithm="tree:1")
        stats = comm.stats()
        parts = [one for one in stats if one.algorithm.startswith("butterfly_")]
        assert stats.of("allreduce", "butterfly").calls == sum(one.calls for one in parts) == 2
        assert stats.of("allreduce", "tree").calls == 1 and stats.of("allreduce", "round_robin").calls == 0
        for wrong, right in (("buterfly", "butterfly"), ("shard", "shared")):
            with pytest.raises(ValueError, match=f"unknown algorithm '{wrong}'; did you mean '{right}'"):
                stats.of("allreduce", wrong)
        with pytest.raises(ValueError, match="unknown operation 'allreduc'; did you mean 'allreduce'"):
            stats.of("allreduc")

    threads.run(4, program, config=Config(shared_memory="off"))


def test_the_nearest_name():
    assert arguments.nearest("ringg", ["ring", "tree"]) == "; did you mean 'ring'?"
    assert arguments.nearest("xyz", ["ring", "tree"]) == ""
