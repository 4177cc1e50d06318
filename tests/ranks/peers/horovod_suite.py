"""Runs Horovod's tests, unchanged, on `ringcomm.as_horovod`, under mpiexec on all ranks.

    mpiexec -n 2 python horovod_suite.py /path/to/horovod/test test_torch.py [pattern of Class::test ...]

pytest reads the tests from that folder (of Horovod's repository); they need the packages mock and
parameterized. Prints each failure, the skipped tests by reason, and a line of totals.
horovod_verdicts.py names the tests that are skipped, with the reasons.
"""

from __future__ import annotations

import collections
import faulthandler
import fnmatch
import functools
import os
import sys
import threading
import time
import types
from collections.abc import Generator
from pathlib import Path
from typing import Any

os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "20"  # ends a test on the other ranks if it fails on one rank
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import pytest
from horovod_verdicts import verdict
from mpi4py import MPI

import ringcomm.as_horovod  # noqa: F401
from ringcomm._src.named import basics, runtime
from ringcomm._src.named import build as util

WORLD = MPI.COMM_WORLD
LIMIT = 400.0  # seconds that one test may take before every rank prints its stack


def in_thread(target: Any, args: Any = (), name: str | None = None, daemon: bool = True, silent: bool = False) -> Any:
    thread = threading.Thread(target=target, args=tuple(args), name=name, daemon=daemon)
    thread.start()
    return thread


def serve(name: str, **contents: Any) -> None:
    """Adds a module that the tests' helpers import from Horovod's launcher."""
    module = types.ModuleType(name)
    module.__dict__.update(contents, __path__=[])
    sys.modules[name] = module


def set_ids_and_ranks() -> dict[int | None, list[int]]:
    return {one.process_set_id: one.ranks for one in runtime.session().sets}


class Ranks:
    """Starts each test on all ranks together, and combines their outcomes."""

    def __init__(self, module: str, patterns: list[str]) -> None:
        self.module, self.patterns = module, patterns
        self.reason, self.wrong = "", ""
        self.counts: collections.Counter[str] = collections.Counter()
        self.skipped: collections.Counter[str] = collections.Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if any(fnmatch.fnmatch(self.name(item), one) for one in self.patterns)]
        for item in items:
            if reason := verdict(self.module, item.name):
                item.add_marker(pytest.mark.skip(reason=reason))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        self.reason, self.wrong, began = "", "", time.monotonic()
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        yield
        if self.wrong:  # before the exchange with the other ranks, which may still wait in the test
            print(f"FAILED {self.name(item)} on rank {WORLD.rank}:\n{self.wrong}", flush=True)
        outcomes = WORLD.allgather((self.reason, bool(self.wrong)))
        faulthandler.cancel_dump_traceback_later()
        reason, wrong = next((one for one, _ in outcomes if one), ""), any(one for _, one in outcomes)
        outcome = "failed" if wrong else "skipped" if reason else "passed"
        self.counts[outcome] += 1
        self.skipped[reason] += bool(reason and not wrong)
        if WORLD.rank == 0 and os.environ.get("VERBOSE"):
            print(f"{time.monotonic() - began:6.2f} s {outcome} {self.name(item)} {reason}", flush=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.wrong += report.longreprtext
        elif report.skipped:
            longrepr: Any = report.longrepr
            self.reason = str(longrepr[2]).removeprefix("Skipped: ")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            raise SystemExit(f"{report.nodeid} cannot be read:\n{report.longrepr}")

    @staticmethod
    def name(item: pytest.Item) -> str:
        return item.nodeid.partition("::")[2]


def main(folder: str, module: str, *patterns: str) -> int:
    serve("horovod.runner.util")
    serve("horovod.runner.util.threads", in_thread=in_thread)
    serve("horovod.runner.common")
    serve("horovod.runner.common.util")
    serve("horovod.runner.common.util.env", get_env_rank_and_size=lambda: (WORLD.rank, WORLD.size))
    util._cache = functools.cache  # type: ignore[attr-defined]
    basics.HorovodBasics._get_process_set_ids_and_ranks = staticmethod(set_ids_and_ranks)  # type: ignore[attr-defined]
    ranks, began = Ranks(module, list(patterns) or ["*"]), time.monotonic()
    path = Path(folder).resolve() / "parallel" / module
    options = ["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-c", os.devnull]
    pytest.main([str(path), "--rootdir", folder, *options], plugins=[ranks])
    if WORLD.rank == 0:
        for reason, count in ranks.skipped.items():
            if count:
                print(f"skipped {count}: {reason}")
        print(f"{module}: " + ", ".join(f"{ranks.counts[one]} {one}" for one in ("passed", "failed", "skipped")))
        print(f"on {WORLD.size} ranks in {time.monotonic() - began:.0f} s", flush=True)
    return int(ranks.counts["failed"] > 0 or not ranks.counts)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
