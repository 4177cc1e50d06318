"""Test suites of peers as found, against ringcomm by adapters. PyTorch's is in tests/torch_distributed.

mpi4py's tests of collectives and messages are not part of its package: RINGCOMM_PEER_MPI4PY names the folder `test` of
its source distribution or repository.

Seen with mpi4py of August 2026, on 2 and 3 ranks: 472 tests pass with MPICH 5.0.2 and 470 with Open MPI 5.0.11, of 639;
none fails. mpi4py_suite.py names the others with the reason: 133 need parts of MPI that ringcomm does not have, 4 see a
deliberate difference, and mpi4py itself skips 30 to 32 (30 need CuPy or Numba).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import launching  # noqa: E402

SOURCE = os.environ.get("RINGCOMM_PEER_MPI4PY", "")


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.skipif(not SOURCE, reason="RINGCOMM_PEER_MPI4PY does not name the folder of mpi4py's tests")
@pytest.mark.timeout(660)
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_suite_of_mpi4py(ranks: int, tmp_path: Path) -> None:
    """Every test passes that the calls of ringcomm can express."""
    folder = Path(SOURCE).resolve()
    assert (folder / "arrayimpl.py").is_file(), f"RINGCOMM_PEER_MPI4PY={SOURCE} holds no tests of mpi4py"
    text = launching.output_of([HERE / "mpi4py_suite.py", folder], tmp_path, ranks, timeout=600)
    (total,) = re.findall(r"^all: (\d+) passed, 0 failed, \d+ skipped$", text, re.MULTILINE)
    assert int(total) >= 400
