"""Jobs whose ranks are started by the tasks of a Spark job."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import ROOT, output_of

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark")
spark = pytest.importorskip("ringcomm.spark")

LIMIT = 60.0  # seconds for a call that must not hang


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """Starts Spark on this host, with three slots."""
    from mpi4py import MPI
    from pyspark.sql import SparkSession

    if "MPICH" not in MPI.Get_library_version():
        pytest.skip("Open MPI needs its own launcher")
    if not shutil.which("java"):
        pytest.skip("Spark needs Java")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        it = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
        yield
        it.stop()


def functions() -> dict[str, Any]:
    """Returns functions that are sent by value, because no module defines them."""

    def total(scale: int = 1) -> tuple[Any, ...]:
        import ringcomm

        ringcomm.init()
        rank, size = ringcomm.rank(), ringcomm.size()
        print(f"rank {rank} runs")
        x = ringcomm.allreduce(np.full(100_000, rank + 1.0), op=ringcomm.Sum)
        assert (x == x[0]).all()
        return rank, size, ringcomm.local_rank(), x[0] * scale, os.environ.get("SEEN")

    def fail(how: str) -> None:
        import ringcomm

        dying = os.environ["PMI_RANK"] == "1"
        if dying and how == "dies before init":
            os.kill(os.getpid(), signal.SIGKILL)
        ringcomm.init()
        if dying and how == "raises":
            raise KeyError("of this rank alone")
        if dying:
            time.sleep(0.3)
            os.kill(os.getppid() if how == "its task dies" else os.getpid(), signal.SIGKILL)
        while True:
            ringcomm.allreduce(np.ones(3), name="x")

    return {"total": total, "fail": fail}


def expected(scale: int = 1, seen: str | None = None) -> list[tuple[Any, ...]]:
    return [(rank, 3, rank, 6.0 * scale, seen) for rank in range(3)]


def test_results_come_by_rank_and_two_jobs_run_one_after_another(session: None) -> None:
    total, out = functions()["total"], io.StringIO()
    assert spark.run(total) == expected()
    assert spark.run(total, (2,), num_proc=3, env={"SEEN": "7"}, stdout=out) == expected(2, "7")
    assert re.findall(r"rank \d runs", out.getvalue()) == [f"rank {rank} runs" for rank in range(3)]


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("raises", KeyError, "of this rank alone"),
        ("dies", RuntimeError, "rank 1 of 3 has died: SIGKILL"),
        ("dies before init", RuntimeError, "rank 1 of 3 has died: SIGKILL"),
        ("its task dies", RuntimeError, r"without results of ranks \[.*1|the Spark job has failed"),
    ],
)
def test_a_rank_that_fails_is_one_error_and_the_next_job_is_right(
    session: None, how: str, kind: type[Exception], words: str
) -> None:
    began = time.monotonic()
    with pytest.raises(kind, match=words):
        spark.run(functions()["fail"], (how,), num_proc=3)
    assert time.monotonic() - began < LIMIT
    assert spark.run(functions()["total"], kwargs={"scale": 3}) == expected(3)


def test_more_ranks_than_slots_are_a_timeout(session: None) -> None:
    with pytest.raises(TimeoutError, match=r"ranks \[0, 1, 2, 3\] of 4 have not started within 2 s"):
        spark.run(functions()["total"], num_proc=4, start_timeout=2)


def test_no_rank_at_all_is_refused(session: None) -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        spark.run(print, num_proc=0)


def test_the_example(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    if not shutil.which("java"):
        pytest.skip("Spark needs Java")
    accuracies = re.findall(
        r"rank ([01]): accuracy (0\.\d+)$", output_of([ROOT / "examples" / "spark_digits.py"], tmp_path), re.M
    )
    assert [rank for rank, _ in accuracies] == ["0", "1"]
    assert accuracies[0][1] == accuracies[1][1] and float(accuracies[0][1]) > 0.85
