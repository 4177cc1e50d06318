"""Test suites of peers as found, against ringcomm by adapters. PyTorch's is in tests/torch_distributed.

mpi4py's tests of collectives and messages are not part of its package: RINGCOMM_PEER_MPI4PY names the folder `test` of
its source distribution or repository.
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
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_suite_of_mpi4py(ranks: int, tmp_path: Path) -> None:
    """All that can be said in ringcomm's calls passes."""
    folder = Path(SOURCE).resolve()
    assert (folder / "arrayimpl.py").is_file(), f"RINGCOMM_PEER_MPI4PY={SOURCE} holds no tests of mpi4py"
    text = launching.output_of([HERE / "mpi4py_suite.py", folder], tmp_path, ranks)
    (total,) = re.findall(r"^all: (\d+) passed, 0 failed, \d+ skipped$", text, re.MULTILINE)
    assert int(total) >= 400
