"""Runs the notebooks of examples/teaching and writes their figures. `make docs` runs this script.

`python docs/write_teaching.py [--output FOLDER] [NOTEBOOK ...]` needs no Jupyter: it executes the
code cells of a notebook in one namespace. The notebook's variable `figure` is its figure.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "teaching").glob("*.ipynb"))


def run(notebook: Path) -> dict[str, Any]:
    """Executes the code cells. Returns their variables."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images", help="folder for the figures")
    parser.add_argument("notebooks", nargs="*", type=Path, default=NOTEBOOKS)
    options = parser.parse_args()
    matplotlib.use("Agg")
    for notebook in options.notebooks:
        file = options.output / f"teaching-{notebook.stem}.png"
        run(notebook)["figure"].savefig(file, dpi=120)
        print(f"figure written to {file}")


if __name__ == "__main__":
    main()
