"""Runs the examples in examples/parallel; each compares its result with one process."""

from __future__ import annotations

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
        "pipeline --schedule 1f1b --draw {}/drawn.png",
        "pipeline --schedule interleaved",
        "pipeline --schedule zb",
    ],
)
def test_a_recipe(recipe: str, tmp_path: Path) -> None:
    run(tmp_path, 2, *recipe.format(tmp_path).split())
    assert ("--draw" in recipe) == (tmp_path / "drawn.png").exists()


def test_a_checkpoint_of_three_ranks_on_two(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    run(tmp_path, 3, "checkpoint", "--save", str(folder))
    run(tmp_path, 2, "checkpoint", "--load", str(folder))


@pytest.mark.slow
def test_three_ways_at_once(tmp_path: Path) -> None:
    run(tmp_path, 8, "three_d")
