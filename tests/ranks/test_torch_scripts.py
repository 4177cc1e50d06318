"""Drawn scripts of users: `ringcomm.torch` on ranks computes what torch computes with averaged gradients."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import mpi_case  # noqa: E402
from found_scripts import SCRIPTS  # noqa: E402
from mutants import MUTANTS  # noqa: E402
from script_grammar import Program, programs  # noqa: E402
from script_ranks import judge  # noqa: E402
from user_names import HEADER  # noqa: E402
from user_statements import EDITS  # noqa: E402

PATHS = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
LIMIT = 40.0  # seconds of a script

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

QUIET = settings(suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)

verdicts: Counter[str] = Counter()


def check(ranks: int, program: Program | str, mutant: str = "") -> str:
    text = str(program)
    try:
        result = mpi_case.run(ranks, judge, text, mutant, limit=LIMIT, variables={"PYTHONPATH": PATHS}, leaves=True)
    except AssertionError as error:
        raise AssertionError(f"{HEADER.format(ranks=ranks, text=text)}\n{error}") from None
    verdict, why = json.loads(result.output.splitlines()[-1])
    verdicts[verdict] += 1
    right = verdict == "right" or (verdict == "refused" and (why.startswith("as by torch") or refusable(text, why)))
    assert right, f"{HEADER.format(ranks=ranks, text=text)}\n{verdict}: {why}"
    return why if verdict == "refused" else ""


def refusable(text: str, why: str) -> bool:
    """Whether the script has what the error is about."""
    return any(message in why and any(one in text for one in statements) for message, statements in REFUSED.items())


def draws(ranks: int, examples: int, **named: Any) -> None:
    @settings(QUIET, max_examples=examples, **named)
    @given(programs())
    def run(program: Program) -> None:
        check(ranks, program)

    run()


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_drawn_scripts(ranks: int) -> None:
    """The same ones each time."""
    draws(ranks, 100, derandomize=True, database=None)


@pytest.mark.mpi
def test_found_scripts() -> None:
    for ranks in (2, 3):
        for text in SCRIPTS.values():
            assert check(ranks, text) == ""


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [2, 3])
def test_many_drawn_scripts(ranks: int) -> None:
    draws(ranks, 2500)


@pytest.mark.mpi
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(mutant: str) -> None:
    """By comparison: not by an error, nor by a hang."""

    def differs(program: Program) -> bool:
        try:
            check(2, program, mutant)
        except AssertionError as error:
            return "are not close" in str(error)
        return False

    find(programs(), differs, settings=settings(QUIET, max_examples=200, phases=[Phase.generate], database=None))
