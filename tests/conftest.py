"""Parts that all tests share: hypothesis profiles, and jobs of ranks that run many cases."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import mpi_case
import pytest
from hypothesis import HealthCheck, settings

# Machines differ in speed, and a first example compiles nothing but allocates a lot: no deadline
# per example.
settings.register_profile("default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


STARTERS = {"mpi_case", "launching", "script_checks"}  # modules with functions that start ranks
# Tests in which the MPI only starts the ranks, which then use the memory of one host. `make test`
# runs them, `make test-openmpi` does not.
ONE_MPI = [
    *("bindings/conformance", "bindings/horovod_scripts", "bindings/scripts", "bindings/torch/test_torch_elastic.py"),
    *("gpu", "ranks/test_docstring_examples.py"),
    *("ranks/test_examples.py", "unit/algorithms/test_tuning.py", "unit/base", "unit/cli", "unit/decentralized"),
    *(
        "unit/test_benchmarks.py",
        "unit/test_code_blocks.py",
        "unit/launch/test_as_horovod.py",
        "bindings/torch_distributed/test_parallel_examples.py",
    ),
]
TESTS = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of each module that imports a module of `STARTERS` or a part of one.

    Those of `ONE_MPI`, and tests without ranks, get another mark.
    """
    for item in items:
        values = vars(item.module).values() if isinstance(item, pytest.Function) else ()
        names = {getattr(value, name, None) for value in values for name in ("__module__", "__name__")}
        if names & STARTERS:
            item.add_marker(pytest.mark.mpi)
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if parameters.get("ranks") == 0 or any(item.path.is_relative_to(TESTS / name) for name in ONE_MPI):
            item.add_marker(pytest.mark.one_mpi)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Ends with the numbers of drawn scripts, where there was a soak."""
    if checks := sys.modules.get("script_checks"):
        for name in checks.numbers:
            terminalreporter.write_line(checks.line(name))


@pytest.fixture(scope="session", autouse=True)
def jobs_end_well() -> Iterator[None]:
    yield
    wrong = mpi_case.close_pools()
    assert not wrong, "\n".join(wrong)
