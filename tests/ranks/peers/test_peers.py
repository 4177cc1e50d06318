"""Runs test suites of other libraries on ringcomm (PyTorch's: tests/bindings/torch_distributed).

mpi4py's tests of collectives and messages are not part of its package: RINGCOMM_PEER_MPI4PY names
the folder `test` of its source distribution or repository.

With mpi4py of August 2026, on 2 and 3 ranks, 472 tests pass with MPICH 5.0.2 and 470 with Open MPI
5.0.11, of 639; none fails. mpi4py_suite.py names the others with the reason: 133 need parts of MPI
that ringcomm does not have, 4 see a deliberate difference, and mpi4py itself skips 30 to 32 (30
need CuPy or Numba).

Horovod's tests: RINGCOMM_PEER_HOROVOD names the folder `test` of its repository. They need the
packages mock and parameterized. docs/migrating-from-horovod.md has the table of what passes.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import launching  # noqa: E402

SOURCE = os.environ.get("RINGCOMM_PEER_MPI4PY", "")
HOROVOD = os.environ.get("RINGCOMM_PEER_HOROVOD", "")
# modules of Horovod: the framework, and the least number of tests that pass, without those that
# need old packages
MODULES = {
    "test_torch": ("torch", 93),
    "test_adasum_pytorch": ("torch", 0),
    "test_common": ("torch", 5),
    "test_tensorflow": ("tensorflow", 83),
    "test_tensorflow_process_sets": ("tensorflow", 21),
    "test_tensorflow_process_sets_dynamic": ("tensorflow", 1),
    "test_tensorflow2_keras": ("tensorflow", 2),
    "test_adasum_tensorflow": ("tensorflow", 1),
    "test_process_sets_static": ("tensorflow", 1),
    "test_process_sets_multi_comm": ("tensorflow", 1),
    "test_xla": ("tensorflow", 2),
}


@pytest.mark.slow
@pytest.mark.skipif(not SOURCE, reason="RINGCOMM_PEER_MPI4PY does not name the folder of mpi4py's tests")
@pytest.mark.timeout(660)
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_suite_of_mpi4py(ranks: int, tmp_path: Path) -> None:
    """Runs every test that ringcomm's calls can express; all pass."""
    folder = Path(SOURCE).resolve()
    assert (folder / "arrayimpl.py").is_file(), f"RINGCOMM_PEER_MPI4PY={SOURCE} holds no tests of mpi4py"
    text = launching.output_of([HERE / "mpi4py_suite.py", folder], tmp_path, ranks, timeout=600)
    (total,) = re.findall(r"^all: (\d+) passed, 0 failed, \d+ skipped$", text, re.MULTILINE)
    assert int(total) >= 400


@pytest.mark.slow
@pytest.mark.skipif(not HOROVOD, reason="RINGCOMM_PEER_HOROVOD does not name the folder of Horovod's tests")
@pytest.mark.timeout(1860)
@pytest.mark.parametrize("module", MODULES)
def test_the_suite_of_horovod(module: str, tmp_path: Path) -> None:
    folder, (framework, least) = Path(HOROVOD).resolve(), MODULES[module]
    assert (folder / "parallel").is_dir(), f"RINGCOMM_PEER_HOROVOD={HOROVOD} holds no tests of Horovod"
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    text = launching.output_of([HERE / "horovod_suite.py", folder, f"{module}.py"], tmp_path, 2, timeout=1800)
    (passed,) = re.findall(rf"^{module}.py: (\d+) passed, 0 failed, \d+ skipped$", text, re.MULTILINE)
    assert int(passed) >= least
