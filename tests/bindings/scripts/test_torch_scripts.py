"""Drawn scripts: `ringcomm.torch` on ranks equals torch with averaged gradients."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

HERE = Path(__file__).resolve().parent
from found_scripts import SCRIPTS  # noqa: E402
from mutants import MUTANTS  # noqa: E402
from script_checks import Judge  # noqa: E402
from script_grammar import programs  # noqa: E402
from user_statements import EDITS  # noqa: E402

REFUSED = {
    "changed gradients between backward() and step()": [
        *(indent(one, "    ") for one in EDITS),
        "g.add_(other)",
        "halve",
        "grow",
        "scaler.unscale_",
    ],
    "cannot be copied or pickled": ["copy.deepcopy((net, opt))", "pickle.dumps((net, opt))"],
}
TORCH = Judge("torch", programs(), REFUSED)


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_drawn_scripts(ranks: int) -> None:
    """Runs the same scripts each time."""
    TORCH.draws(ranks, 50, derandomize=True, database=None)


def test_found_scripts() -> None:
    for ranks in (2, 3):
        for text in SCRIPTS.values():
            assert TORCH.check(ranks, text) == ""


def test_a_script_that_fails_on_one_rank_is_invalid() -> None:
    text = "if rank == 1:\n    raise KeyError\nhvd.allreduce(torch.ones(1))\n"
    with pytest.raises(AssertionError, match=r"fails on some ranks only: \{1: 'KeyError"):
        TORCH.check(3, text)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [2, 3])
def test_many_drawn_scripts(ranks: int, capfd: pytest.CaptureFixture[str]) -> None:
    TORCH.soaks(ranks, 2500, capfd)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(mutant: str) -> None:
    TORCH.finds(mutant)
