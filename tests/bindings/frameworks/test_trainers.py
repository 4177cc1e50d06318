"""Runs the examples of Lightning, Accelerate and Hugging Face's Trainer on the backend ringcomm.

Each example compares its result with that of one process.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import mpi_case  # noqa: E402
from launching import ROOT  # noqa: E402


@pytest.mark.parametrize("library", ["lightning", "accelerate", "transformers"])
def test_an_example(library: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} not installed: make test-frameworks")
    program = ROOT / "examples" / "parallel" / f"with_{'trainer' if library == 'transformers' else library}.py"
    result = mpi_case.run(2, mpi_case.run_python, [str(program)], str(tmp_path), limit=200, alone=True)
    assert "equal to one process" in result.text and "NOT" not in result.text, result.text
