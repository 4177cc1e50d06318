"""The notebooks of examples/teaching are valid, hold no outputs, and run with their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = sorted((ROOT / "examples" / "teaching").glob("*.ipynb"))
QUICK = ("1_allreduce", "3_synchronous_sgd")  # `make test` runs these
CELL_KEYS = {
    "markdown": {"cell_type", "metadata", "source"},
    "code": {"cell_type", "metadata", "source", "outputs", "execution_count"},
}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_valid_and_hold_no_outputs(notebook: Path) -> None:
    """Checks the parts of nbformat 4.4 that these notebooks use."""
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 4)
    assert set(document["metadata"]) == {"kernelspec", "language_info"}
    assert document["cells"][0]["cell_type"] == "markdown"
    for cell in document["cells"]:
        assert set(cell) == CELL_KEYS[cell["cell_type"]]
        assert all(isinstance(line, str) for line in cell["source"])
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        assert not cell.get("outputs") and cell.get("execution_count") is None


@pytest.mark.parametrize(
    "notebook",
    [pytest.param(path, marks=[] if path.stem in QUICK else pytest.mark.slow, id=path.stem) for path in NOTEBOOKS],
)
def test_notebooks_run(notebook: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(ROOT / "docs" / "write_teaching.py"), "--output", str(tmp_path), str(notebook)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / f"teaching-{notebook.stem}.png").stat().st_size > 10_000


def test_every_notebook_ends_with_exercises() -> None:
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        assert "check(" in "".join(cells[-1]["source"]), notebook
