"""Jobs with Ray actors as ranks."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import ROOT, output_of

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray")
RayExecutor = pytest.importorskip("ringcomm.ray").RayExecutor

LIMIT = 60.0  # seconds for a call that must not hang


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Starts Ray on this host with four nominal CPUs."""
    from mpi4py import MPI

    if "MPICH" not in MPI.Get_library_version():
        pytest.skip("Open MPI needs its own launcher")
    variables = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        ray.init(num_cpus=4, include_dashboard=False)
        yield
        ray.shutdown()


@pytest.fixture
def executor() -> Iterator[RayExecutor]:
    it = RayExecutor(RayExecutor.create_settings(), num_workers=3)
    it.start(extra_env_vars={"SEEN": 7})
    yield it
    it.shutdown()


def functions() -> dict[str, Any]:
    """Returns functions that Ray sends by value, because no module defines them."""

    def total(scale: int = 1) -> tuple[Any, ...]:
        import ringcomm

        ringcomm.init()
        rank, size = ringcomm.rank(), ringcomm.size()
        x = ringcomm.allreduce(np.full(100_000, rank + 1.0), op=ringcomm.Sum)
        assert (x == x[0]).all() and "PMI_RANK" not in os.environ
        return rank, size, ringcomm.local_rank(), x[0] * scale, os.environ.get("SEEN")

    def fail(failing: int, how: str) -> None:
        import ringcomm

        ringcomm.init()
        if ringcomm.rank() == failing and how == "raises":
            raise KeyError("of this rank alone")
        if ringcomm.rank() == failing:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            ringcomm.allreduce(np.ones(3), name="x")

    return {"total": total, "fail": fail}


def expected(scale: int = 1, seen: str | None = "7") -> list[tuple[Any, ...]]:
    return [(rank, 3, rank, 6.0 * scale, seen) for rank in range(3)]


def test_results_come_by_rank_in_every_way_of_calling(executor: RayExecutor) -> None:
    total = functions()["total"]
    assert executor.run(total) == expected()
    assert executor.run(total, [2]) == executor.run(total, kwargs={"scale": 2}) == expected(2)
    assert ray.get(executor.run_remote(total, args=[3])) == expected(3)
    assert executor.execute(lambda executable: (executable, total())[1]) == expected()
    assert executor.execute_single(lambda executable: executable) is None
    with pytest.warns(UserWarning, match="only elastic jobs"):
        executor.run(total, callbacks=[print])
    with pytest.raises(RuntimeError, match="have been started"):
        executor.start()


def test_an_executable_and_two_jobs_one_after_another() -> None:
    class Counter:
        def __init__(self, start: int, step: int = 1) -> None:
            import ringcomm

            ringcomm.init()
            self.value, self.step = start + ringcomm.rank(), step

        def add(self) -> int:
            self.value += self.step
            return self.value

    it = RayExecutor(RayExecutor.create_settings(), num_hosts=1, num_workers_per_host=2)
    for start in (10, 20):
        it.start(Counter, [start], {"step": 5})
        assert it.execute(lambda counter: counter.add()) == [start + 5, start + 6]
        assert it.execute_single(lambda counter: counter.add()) == start + 10
        it.shutdown()
        with pytest.raises(RuntimeError, match="call start"):
            it.run(print)


def test_an_exception_of_one_rank_is_the_error_and_the_job_goes_on(executor: RayExecutor) -> None:
    began = time.monotonic()
    with pytest.raises(KeyError, match="of this rank alone"):
        executor.run(functions()["fail"], [1, "raises"])
    assert time.monotonic() - began < LIMIT
    assert executor.run(functions()["total"]) == expected()


def test_a_killed_worker_is_one_error_and_the_next_job_is_right(executor: RayExecutor) -> None:
    began = time.monotonic()
    with pytest.raises(ray.exceptions.RayActorError, match=r"the worker of rank 1 of 3 has died"):
        executor.run(functions()["fail"], [1, "dies"])
    executor.shutdown()
    assert time.monotonic() - began < LIMIT
    executor.start()
    assert executor.run(functions()["total"]) == expected(seen=None)


def test_a_placement_group_that_is_current_is_used() -> None:
    group = ray.util.placement_group([{"CPU": 1}] * 3)
    total = functions()["total"]

    class Caller:
        def call(self) -> list[Any]:
            it = RayExecutor(RayExecutor.create_settings(), num_workers=3)
            it.start()
            made, results = it._made_group, it.run(total)
            it.shutdown()
            return [made, results]

    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, -1, True)
    caller = ray.remote(Caller).options(num_cpus=0, scheduling_strategy=strategy).remote()
    assert ray.get(caller.call.remote(), timeout=LIMIT) == [None, expected(seen=None)]
    ray.kill(caller)
    ray.util.remove_placement_group(group)


def test_what_cannot_be_placed_is_a_timeout() -> None:
    it = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=1), num_workers=64)
    with pytest.raises(TimeoutError, match=r"64 times .* within 1 s .*; available are"):
        it.start()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_workers": 1, "max_workers": 2}, "ringrun --min-np"),
        ({"max_workers": 2}, "ringrun --min-np"),
        ({"num_workers": 2, "gpus_per_worker": 1}, "use_gpu=True"),
        ({"num_workers": 2, "use_gpu": True, "gpus_per_worker": -1}, "at least 1"),
        ({"num_workers": 2, "num_hosts": 1}, "num_workers, or num_hosts"),
        ({}, "num_workers, or num_hosts"),
        ({"num_workers": 0}, "at least one worker"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        RayExecutor(RayExecutor.create_settings(), **arguments)


def test_the_example(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    text = output_of([ROOT / "examples" / "ray_digits.py"], tmp_path)
    accuracies = re.findall(r"^rank ([01]): accuracy (0\.\d+)$", text, re.M)
    assert [rank for rank, _ in accuracies] == ["0", "1"]
    assert accuracies[0][1] == accuracies[1][1] and float(accuracies[0][1]) > 0.9
