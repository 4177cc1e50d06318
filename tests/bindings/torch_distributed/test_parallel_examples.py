"""Runs the examples in examples/parallel; each compares its result with one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import mpi_case  # noqa: E402
from launching import ROOT  # noqa: E402

RECIPES = ROOT / "examples" / "parallel"


def run(folder: Path, ranks: int, recipe: str, *arguments: str) -> str:
    text = mpi_case.output_of([RECIPES / f"{recipe}.py", *arguments], folder, ranks=ranks)
    assert text.count("equal to") == 1 and f"on {ranks} ranks" in text and "NOT" not in text, text
    return text


@pytest.mark.parametrize(
    "recipe",
    [
        "ddp",
        "ddp --compression int8",
        "fsdp",
        "zero",
        "local_sgd",
        "tensor_parallel",
        "pipeline --schedule gpipe",
        "pipeline --schedule 1f1b --record {}/steps.json",
        "pipeline --schedule interleaved",
        "pipeline --schedule zb",
    ],
)
def test_a_recipe(recipe: str, tmp_path: Path) -> None:
    run(tmp_path, 2, *recipe.format(tmp_path).split())
    steps, picture = tmp_path / "steps.json", tmp_path / "steps.png"
    assert ("--record" in recipe) == steps.exists()
    if steps.exists():
        subprocess.run([sys.executable, RECIPES / "bubble.py", steps, picture], check=True)
        entry = json.loads(steps.read_text())["1f1b"]
        assert picture.exists() and len(entry["bubbles"]) == 40
        for rows in entry["step"]:
            assert sorted(number for what, number, *_ in rows if what == "forward") == list(range(8))


def test_a_checkpoint_of_three_ranks_on_two(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    run(tmp_path, 3, "checkpoint", "--save", str(folder))
    run(tmp_path, 2, "checkpoint", "--load", str(folder))


@pytest.mark.slow
def test_three_ways_at_once(tmp_path: Path) -> None:
    run(tmp_path, 8, "three_d")
