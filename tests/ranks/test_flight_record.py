"""Timelines with a limit show which rank is late, also after the processes were killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import mpi_case
import numpy as np
import psutil
import pytest
from launching import LAUNCHER, ROOT, environment

import ringcomm
from ringcomm._src.cli import main
from ringcomm._src.cli.timeline import waits
from ringcomm._src.cli.timeline_files import Record, read_events, read_records

LAST = 30


def hanging(folder: str) -> None:
    ringcomm.init()
    ringcomm.start_timeline(os.path.join(folder, "t{rank}.json"), last=LAST)
    for _ in range(4 * LAST):
        ringcomm.allreduce(np.ones(2), name="loss")
    ringcomm.barrier()
    if ringcomm.rank() == 1:
        time.sleep(2)
    handle = ringcomm.allreduce_async(np.ones(2), name="late")
    if ringcomm.rank() == 0:
        time.sleep(1)
        paths = [os.path.join(folder, f"t{rank}.json") for rank in range(2)]
        for path in paths:
            assert len([event for event in read_events(path) if event["ph"] != "M"]) >= LAST
        assert main(["timeline", "--last", "2", *paths]) == 0
    handle.wait()
    ringcomm.stop_timeline()


def test_a_rank_that_is_late_is_named_while_the_other_one_waits(tmp_path: Path) -> None:
    text = mpi_case.run(2, hanging, str(tmp_path)).text
    assert re.search(r"'allreduce.late' has waited for .* m?s on rank 0: rank 1 has not submitted it\n", text), text
    assert re.search(r"  rank 1 completed '[\w.]+' last, .* m?s before the end\n", text), text


def failing(how: str) -> None:
    ringcomm.init()
    ringcomm.allreduce(np.ones(2), name="early")
    if ringcomm.rank() == 1:
        if how in ("leaves", "has left"):
            return
        if how == "dies":
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
    if how == "has left":
        with contextlib.suppress(ringcomm.RankLeftError):
            ringcomm.allreduce(np.ones(2), name="before")
    ringcomm.allreduce(np.ones(2 + ringcomm.rank()), name="late")


@pytest.mark.parametrize(
    ("how", "error"),
    [("differs", "MismatchError"), ("leaves", "RankLeftError"), ("has left", "RankLeftError"), ("dies", "")],
)
def test_an_error_is_in_the_file(how: str, error: str, tmp_path: Path) -> None:
    variables = {"RINGCOMM_TIMELINE": str(tmp_path / "t{rank}.json"), "RINGCOMM_TIMELINE_LAST": "100"}
    result = mpi_case.start(2, failing, how, variables=variables)
    assert result.status != 0 and error in result.text
    records = read_records(list(map(str, tmp_path.iterdir())))
    newest = records[0].operations[-1]
    assert newest.name == "allreduce.late"
    assert newest.failed or how == "dies"  # the launcher may end rank 0 before rank 0 notices the death
    assert "allreduce.early" in [operation.name for operation in records[1].operations]


def program() -> str:
    """Returns the program of docs/debugging.md."""
    page = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python tests/ranks/test_flight_record.py\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return "".join(blocks)


def records_of(folder: Path) -> dict[int, Record]:
    with contextlib.suppress(ValueError, OSError):  # a file has no events yet, or is being written
        return read_records(list(map(str, folder.glob("t?.json"))))
    return {}


def test_the_example_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(program())
    variables = {"RINGCOMM_TIMELINE": "t{rank}.json", "RINGCOMM_TIMELINE_LAST": "100"}
    job = subprocess.Popen(
        [str(LAUNCHER), "-n", "2", sys.executable, "train.py"], cwd=tmp_path, env=environment() | variables
    )
    ranks = psutil.Process(job.pid)
    deadline = time.monotonic() + 60
    while not (found := records_of(tmp_path)) or not waits(found):
        assert time.monotonic() < deadline and job.poll() is None
        time.sleep(0.2)
    time.sleep(1)
    processes = ranks.children(recursive=True)
    job.terminate()
    psutil.wait_procs(processes, timeout=20)
    for process in [*processes, ranks]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    job.wait()
    assert main(["timeline", str(tmp_path / "t0.json"), str(tmp_path / "t1.json")]) == 0
    text = capsys.readouterr().out
    assert re.search(r"'plan/optimizer0.plan1' has waited for .* on rank 0: rank 1 has not submitted it\n", text), text
    assert "  rank 1 completed 'allreduce.loss' last, " in text
