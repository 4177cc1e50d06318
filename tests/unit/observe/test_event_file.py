"""The file of a timeline with a limit: after every write it has the newest events, and names them."""

from __future__ import annotations

import errno
import json
import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcomm
from ringcomm import threads
from ringcomm._src.core._core import TraceEvents
from ringcomm._src.observe import timeline
from ringcomm._src.observe.events import Listener
from ringcomm._src.observe.timeline import Batch, EventFile

BUCKET = "plan/optimizer0.plan1/0"


@cache
def recorded() -> list[TraceEvents]:
    """Returns batches of the core, of different lengths and with different rows."""
    found = []
    with Listener() as listener:
        for number, count in enumerate((1, 2, 7)):

            def calls(comm: ringcomm.Communicator, name: str = f"row {number}", count: int = count) -> None:
                for _ in range(count):
                    comm.allreduce(np.ones(1), name=name)

            threads.run(1, calls)
            found += listener.take_batches()
    return found


def shown(path: Path) -> list[tuple[str, str, float]]:
    """Returns the row, the name and the time of each event, and checks the metadata."""
    events = json.loads(path.read_text())
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    metadata = [event["name"] for event in events if event["ph"] == "M"]
    assert metadata.count("process_name") == 1 and events[-1]["name"] == "clocks"
    assert [event["args"]["tensors"] for event in events if event["name"] == "tensors"] == [["weight"]]
    assert BUCKET in rows.values()
    return [(rows[event["tid"]], event["name"], event["ts"]) for event in events if event["ph"] != "M"]


writes = st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=2), st.integers(0, 3)), max_size=30)


@given(writes, st.integers(0, 60))
def test_a_file_has_the_newest_events(drawn: list[tuple[list[int], int]], last: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_members", {BUCKET: ["weight"]})
        complete, limited = Path(folder, "all.json"), Path(folder, "last.json")
        files = [EventFile(str(complete), 0, True), EventFile(str(limited), 0, True, last)]
        noted, longest = 0, 0
        for kinds, count in drawn:
            notes = [(f"row of {n % 5}", {"name": str(n), "ph": "X", "ts": n}) for n in range(noted, noted + count)]
            noted += count
            batch = Batch([recorded()[kind] for kind in kinds], notes)
            longest = max(longest, batch.size())
            for file in files:
                file.write(batch)
            events, newest = shown(complete), shown(limited)
            assert newest == events[len(events) - len(newest) :]
            assert len(newest) >= min(len(events), last or len(events))
            assert not last or len(newest) <= 2 * last + longest
            assert sorted(path.name for path in Path(folder).iterdir()) == ["all.json", "last.json"]
        for file in files:
            file.close()


def test_a_file_is_found_after_its_program_has_changed_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = EventFile("t.json", 0, last=1)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    for number in range(5):
        file.write(Batch([], [("row", {"name": str(number), "ph": "X", "ts": number})]))
    file.close()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["t.json"]
    assert '"name": "4"' in (tmp_path / "t.json").read_text()


def test_a_device_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("a device would be replaced"))
    file = EventFile(os.devnull, 0, last=1)
    for number in range(5):
        file.write(Batch([], [("row", {"name": str(number), "ph": "X", "ts": number})]))
    file.close()


def fail_to_write(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("last", [0, 1])
def test_a_full_disk_ends_the_timeline_only(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.json"
    timeline.start(str(path), 0, last=last)
    try:
        for number in range(3):
            timeline.note(str(number), 0)
        timeline.flush()
        before = path.read_text()
        monkeypatch.setattr(os, "pwrite", fail_to_write)
        for number in range(3, 6):
            timeline.note(str(number), 0)
        timeline.flush()
        timeline.describe({})
        timeline.note("later", 0)
    finally:
        timeline.stop()
    (record,) = caplog.records
    assert f"timeline {path} ends here" in record.message and "No space left" in record.message
    assert path.read_text() == before and json.loads(before)
    assert [found.name for found in tmp_path.iterdir()] == ["t.json"]


def test_a_limit_is_a_number() -> None:
    with pytest.raises(ValueError, match="last must be at least 0, not -1"):
        timeline.start("never", 0, last=-1)
    with pytest.raises(TypeError, match="last must be an integer"):
        timeline.start("never", 0, last="many")  # type: ignore[arg-type]
