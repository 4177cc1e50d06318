"""The timeline is a Chrome trace of the operations that ran, and it is valid however the job ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter

import mpi_case
import numpy as np
import pytest

import ringcomm
from ringcomm._src.observe.events import Listener
from ringcomm._src.observe.timeline import TraceFile


def load(path):
    return json.loads(path.read_text())


def rows_of(events):
    """Returns a map tid -> name."""
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def on_row(events, name):
    """Returns the events of one row, in the order of their beginnings."""
    rows = rows_of(events)
    found = [event for event in events if event["ph"] != "M" and rows.get(event["tid"]) == name]
    return sorted(found, key=lambda event: (event["ts"], -event.get("dur", 0)))


def assert_nested(events):
    """Checks that events of a row are nested or consecutive, because viewers need that."""
    for row in rows_of(events):
        ends = []
        mine = [event for event in events if event["tid"] == row and event["ph"] == "X"]
        for event in sorted(mine, key=lambda event: (event["ts"], -event["dur"])):
            begin, end = event["ts"], event["ts"] + event["dur"]
            while ends and ends[-1] <= begin + 0.002:  # times are rounded to nanoseconds
                ends.pop()
            assert not ends or end <= ends[-1] + 0.002, (event, ends)
            ends.append(end)


def timed(path, mark_cycles):
    ringcomm.init()
    ringcomm.start_timeline(path, mark_cycles)
    try:
        ringcomm.start_timeline(path)
    except ValueError:
        pass
    else:
        assert ringcomm.rank() and "{rank}" not in path
    ringcomm.communicator().barrier()  # otherwise another rank's message may arrive before this rank listens
    for _ in range(3):
        ringcomm.allreduce(np.ones(100, np.float32), name="weights")
    ringcomm.grouped_allreduce([np.ones(10, np.float32), np.ones(20, np.float32)], name="pair")
    ringcomm.communicator().broadcast(np.ones(3), name="bias")
    ringcomm.communicator().allreduce(np.ones(1 << 19), name="ringed", algorithm="ring")
    with Listener() as other:  # a second listener for some time
        ringcomm.allreduce(np.ones(5), name="heard by two")
    assert any("heard by two" in event.name for event in other.take())
    ringcomm.allreduce(np.ones(5), name="after the other")
    with contextlib.suppress(ringcomm.MismatchError):
        ringcomm.allreduce(np.ones(3 + ringcomm.rank()), name="differs")
    ringcomm.stop_timeline()
    ringcomm.communicator().barrier()  # otherwise another rank may still listen
    ringcomm.allreduce(np.ones(100, np.float32), name="untraced")
    ringcomm.stop_timeline()


@pytest.mark.parametrize("pattern, files", [("t.json", ["t.json"]), ("t{rank}.json", ["t0.json", "t1.json"])])
@pytest.mark.parametrize("memory", ["on", "off"])
def test_timeline(tmp_path, pattern, files, memory):
    mark = memory == "on"
    mpi_case.run(2, timed, str(tmp_path / pattern), mark, variables={"RINGCOMM_SHARED_MEMORY": memory})
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    for rank, name in enumerate(files):
        events = load(tmp_path / name)
        assert all(event["pid"] == rank for event in events)
        names = " ".join(rows_of(events).values())
        assert all(word in names for word in ("weights", "bias", "heard by two", "after the other"))
        assert "untraced" not in names
        assert_nested(events)
        check_tensor(on_row(events, "allreduce.weights"), rank, memory)
        check_pipeline(events)
        packed = Counter(event["name"] for event in events if event.get("cat") in ("pack", "unpack"))
        assert packed["packing"] == packed["unpacking"] >= 2
        differs = on_row(events, "allreduce.differs")
        assert differs[-1]["name"] == "done: failed" and not any(event["cat"] == "run" for event in differs)
        assert any(event["cat"] == "cycle" for event in events if "cat" in event) == mark


def check_tensor(events, rank, memory):
    """Checks phases: queued, negotiating, running (algorithm, bytes), done; each three times."""
    stages = [event["cat"] for event in events if event["cat"] in ("queue", "agree", "run", "done")]
    assert stages == ["queue", "agree", "run", "done"] * 3
    for event in events:
        if event["cat"] == "run":
            assert event["args"]["bytes"] == 400 and event["args"]["algorithm"] == event["name"]
            assert (event["name"].startswith("shared")) == (memory == "on")
    if memory == "on":
        assert {"host work", "host wait"} <= {event["cat"] for event in events}
    ready = Counter(event["args"]["detail"] for event in events if event["cat"] == "ready")
    assert ready == ({"rank 0": 3, "rank 1": 3} if rank == 0 else {})  # rank 0 is the coordinator


def check_pipeline(events):
    """Checks a ring of 4 MB in segments: each segment has its phases, on rows that overlap in time."""
    rows = rows_of(events)
    lanes = {row for row, name in rows.items() if name.startswith("ringed · lane")}
    phases = Counter(event["name"] for event in events if event["tid"] in lanes and event["ph"] == "X")
    details = {event["args"]["detail"] for event in events if event["tid"] in lanes and event["ph"] == "X"}
    count = int(next(iter(details)).rpartition(" of ")[2])
    assert len(lanes) > 1 and count > 1
    assert phases == {"share-reduce": count, "share-only": count}
    assert details == {f"segment {i + 1} of {count}" for i in range(count)}


def test_timeline_from_the_environment(tmp_path):
    mpi_case.run(1, plain, variables={"HOROVOD_TIMELINE": str(tmp_path / "t.json")})
    assert load(tmp_path / "t.json")
    mpi_case.run(1, plain, variables={"HOROVOD_TIMELINE": "DYNAMIC"})


def plain():
    ringcomm.init()
    ringcomm.allreduce(np.ones(2), name="x")
    assert not os.path.exists("DYNAMIC")


def dying(how):
    ringcomm.init()
    ringcomm.allreduce(np.ones(2), name="early")
    ringcomm.communicator().barrier()
    if how == "kill":
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)
    ringcomm.allreduce(np.ones(2), name="late")
    raise ValueError("boom")


@pytest.mark.parametrize("how, last", [("kill", "early"), ("raise", "late")])
def test_a_job_that_dies_leaves_a_file_that_opens(tmp_path, how, last):
    result = mpi_case.start(2, dying, how, variables={"RINGCOMM_TIMELINE": str(tmp_path / "t{rank}.json")})
    assert result.status != 0
    files = [load(path) for path in tmp_path.iterdir()]
    assert len(files) == 2
    assert any(f"allreduce.{last}" in rows_of(events).values() for events in files)


def test_a_file_is_whole_after_every_write(tmp_path):
    file = TraceFile(str(tmp_path / "t.json"))
    assert load(tmp_path / "t.json") == []
    expected = []
    for count in (0, 1, 0, 3, 2):
        events = [{"é": len(expected) + i} for i in range(count)]
        expected += events
        file.append(",\n".join(map(json.dumps, events)).encode(), b'{"last": 1}')
        assert load(tmp_path / "t.json") == [*expected, {"last": 1}]
    file.close()


def test_listeners_do_not_disturb_each_other():
    from ringcomm import threads

    def call(name):
        threads.run(1, lambda comm: comm.allreduce(np.ones(1), name=name))

    def names(listener):
        return [event.name for event in listener.take() if event.category == "run" and event.name != "close()"]

    call("before")
    first = Listener()
    call("a")
    second = Listener()
    call("b")
    assert names(first) == ["a", "b"]
    second.close()
    call("c")
    assert names(second) == ["b"] and names(first) == ["c"] and names(first) == []
    first.close()
    first.close()
    call("after")
    assert names(first) == []
