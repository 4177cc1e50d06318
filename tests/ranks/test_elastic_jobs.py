"""Elastic jobs with real ranks: faults that they survive, growth, interruption, and ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from elastic_program import replay
from launching import ROOT, environment

PROGRAM = ROOT / "tests" / "support" / "elastic_program.py"
MARK = "RINGCOMM_TEST_ELASTIC_JOB"


class ElasticJob:
    """A run of ringrun. `words` are its options; `program` holds the arguments of the script."""

    def __init__(self, folder: Path, words: Sequence[str], program: Sequence[str], script: Path = PROGRAM) -> None:
        self._mark = uuid.uuid4().hex
        variables = environment() | {MARK: self._mark, "PYTHONPATH": str(PROGRAM.parent)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ringcomm", "run", *words, sys.executable, str(script), *program],
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def wait_for(self, text: str, limit: float = 60) -> None:
        with self._news:
            assert self._news.wait_for(lambda: text in self.text, limit), f"no {text!r} in\n{self.text}"

    def end(self, limit: float = 90) -> int:
        """Waits for the end and returns the exit status. Checks that no process of the job is left."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self._kill()
            raise AssertionError(f"not over after {limit} s\n{self.text}") from None
        self._reader.join(10)
        deadline = time.monotonic() + 5
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        names = [f"{one.pid} {one.cmdline()}" for one in left]
        self._kill()
        assert not names, f"{names}\n{self.text}"
        return status

    def _left(self) -> list[psutil.Process]:
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get(MARK) == self._mark and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
        return found

    def processes(self, words: str) -> list[psutil.Process]:
        return [one for one in self._left() if words in " ".join(one.cmdline())]

    def _kill(self) -> None:
        for one in self._left():
            with contextlib.suppress(psutil.Error):
                one.kill()

    def result(self, steps: int) -> list[list[int]]:
        """Returns the history, after checking that a replay of it gives the same weights."""
        (line,) = [line for line in self._lines if '{"weights"' in line]
        result = json.loads(line[line.index("{") :])
        assert result["weights"] == replay(result["history"], steps)
        return [entry[:2] for entry in result["history"]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    jobs: list[ElasticJob] = []

    def make(words: Sequence[str], *program: str) -> ElasticJob:
        jobs.append(ElasticJob(tmp_path, words, program))
        return jobs[-1]

    yield make
    for job in jobs:
        job._kill()


@pytest.mark.parametrize("how", ["kill", "raise", "leave", "stop"])
def test_a_rank_is_lost(start, how: str) -> None:
    job = start(["-np", "3", "--min-np", "2"], "12", "0.01", f"{how}:1:1:6")
    assert job.end() == 0, job.text
    assert job.result(12) == [[1, 3], [2, 2]]
    assert job.text.count("reset 2") == 2
    said = {"raise": "exit status 1", "leave": "ended inside elastic.run", "stop": "was stopped", "kill": "SIGKILL"}
    assert f"after rank 1 of 3 on localhost {'' if how in ('leave', 'stop') else 'ended with '}" in job.text
    assert said[how] in job.text
    assert ("ValueError: no such layer" in job.text) == (how == "raise")


def test_output_without_tags(start) -> None:
    """The driver still observes ranks: it names the rank that failed, and prints its output."""
    words = ["-np", "3", "--min-np", "2", "--reset-limit", "1", "--no-tag-output"]
    job = start(words, "8", "0.01", "raise:1:1:4", "raise:2:1:6")
    assert job.end() != 0 and "]<std" not in job.text, job.text
    assert "rank 1 of 3 on localhost ended with exit status 1" in job.text
    assert job.text.count("Traceback (most recent call last)") >= 2 and "ValueError: no such layer" in job.text


def test_losses_in_a_row_and_cold_starts(start) -> None:
    """Two of four ranks are lost at the same time, then a third; no zygote exists to fork from."""
    faults = ["kill:1:1:4", "exit:1:3:4", "kill:2:0:8"]
    job = start(["-np", "4", "--min-np", "1", "--cold-start"], "12", "0", *faults)
    assert job.end() == 0, job.text
    history = job.result(12)
    assert history[0] == [1, 4] and history[-1][1] < 4 and len(history) >= 3, job.text


def test_it_grows_and_shrinks(start, tmp_path: Path) -> None:
    """Membership changes happen at commits, with no step lost; a script that fails changes nothing."""
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    words = ["--min-np", "1", "--max-np", "2", "--host-discovery-script", f"cat {hosts}"]
    job = start(words, "100000", "0.02")
    job.wait_for("training 1 1 0")
    hosts.unlink()
    job.wait_for("the hosts remain unchanged")
    hosts.write_text("localhost:3\n")
    job.wait_for("training 2 2 ")
    hosts.write_text("localhost:1\n")
    job.wait_for("training 3 1 ")
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 143, job.text
    assert "no commit is kept" in job.text


def test_it_is_interrupted_and_goes_on(start, tmp_path: Path) -> None:
    words = ["-np", "2", "--min-np", "2", "--snapshots", str(tmp_path / "kept")]
    job = start(words, "100000", "0.01")
    job.wait_for("training 1 2 0")
    time.sleep(0.3)
    job.process.send_signal(signal.SIGUSR1)
    assert job.end() == 143, job.text
    assert os.listdir(tmp_path / "kept") == ["ringcomm-commit"]
    after = start(words, "60", "0")
    assert after.end() == 0, after.text
    begun = next(line for line in after._lines if "training 1 2" in line).split()[-1]
    assert int(begun) > 0
    after.result(max(60, int(begun)))


def test_a_snapshot_that_cannot_be_read_ends_the_job(start, tmp_path: Path) -> None:
    """The job ends with one line: continuing without the snapshot would overwrite it."""
    (tmp_path / "kept" / "ringcomm-commit").mkdir(parents=True)
    job = start(
        ["-np", "1", "--min-np", "1", "--elastic-timeout", "1", "--snapshots", str(tmp_path / "kept")], "5", "0"
    )
    assert job.end() == 1, job.text
    assert "the snapshot cannot be read" in job.text and "Traceback" not in job.text


def test_restarts_of_a_plain_program(tmp_path: Path) -> None:
    """Restarts a program without the elastic API, until it exceeds --restarts."""
    script = tmp_path / "plain.py"
    script.write_text(
        "import os, ringcomm\nringcomm.init()\nringcomm.barrier()\n"
        "if ringcomm.rank() == 1 and int(os.environ['RINGCOMM_ELASTIC_GENERATION']) < 3: raise ValueError('not yet')\n"
        "ringcomm.barrier()\nprint('at last', ringcomm.size())\n"
    )
    job = ElasticJob(tmp_path, ["-np", "2", "--restarts", "2"], [], script)
    assert job.end() == 0 and job.text.count("at last 2") == 2, job.text
    job = ElasticJob(tmp_path, ["-np", "2", "--restarts", "1"], [], script)
    assert job.end() == 1, job.text
    last = job.text[job.text.index("-" * 80) :]
    assert "ValueError: not yet" in last and "the maximum number of restarts is 1" in last


def test_it_gives_up(start, tmp_path: Path) -> None:
    """A job ends after three faults without a commit, with a traceback, and without hosts."""
    faults = [f"raise:{generation}:0:1" for generation in range(1, 6)]
    job = start(["-np", "2", "--min-np", "1", "--max-np", "2"], "5", "0", *faults)
    assert job.end() == 1, job.text
    assert "3 generations in a row have failed without a new commit" in job.text
    assert "ValueError: no such layer" in job.text[job.text.index("-" * 80) :]
    words = ["--min-np", "2", "--elastic-timeout", "1", "--host-discovery-script", "echo localhost:1"]
    job = start(words, "5", "0")
    assert job.end() == 1, job.text
    assert "waited 1 s (--elastic-timeout) for 2 slots (--min-np), but the number of reachable slots is 1" in job.text


def test_the_driver_is_killed(start) -> None:
    """All processes end if the driver is killed."""
    job = start(["-np", "2", "--min-np", "1"], "100000", "0.01")
    job.wait_for("training 1 2 0")
    job.process.kill()
    assert job.end() == -signal.SIGKILL


@pytest.mark.parametrize(
    "who", ["ringcomm._src.elastic.agent.zygote", "bin/mpiexec bin/prterun bin/mpirun", "ringcomm._src.launch.stub"]
)
def test_a_helper_is_killed(start, who: str) -> None:
    """An equal number of ranks starts again, because no rank is at fault."""
    job = start(["-np", "2", "--min-np", "1"], "100000", "0.01")
    job.wait_for("training 1 2 0")
    helpers = [one for name in who.split() for one in job.processes(name)]
    # ranks have its command line too, and a second zygote may be starting
    if who == "ringcomm._src.elastic.agent.zygote":
        helpers = [one for one in helpers if one.children()]
    helpers[0].kill()
    job.wait_for("training 2 2 ")
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 143, job.text
