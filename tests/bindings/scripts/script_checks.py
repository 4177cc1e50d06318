"""Draws scripts, and compares them with their references on ranks, for all bindings."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mpi_case
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.strategies import SearchStrategy
from script_ranks import judge

PATHS = os.pathsep.join(filter(None, (str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH"))))
LIMIT = 40.0  # seconds per script

QUIET = settings(suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)

HEADER = """\
# {variables}PYTHONPATH=tests/support:tests/bindings/scripts mpiexec -n {ranks} python script.py
from binding_{binding} import User, product as hvd

hvd.init()
user = User(hvd)
globals().update(user.names())

{text}
for name, value in user.seen:
    print(rank, name, value)
"""

VERDICTS = ("right", "refused", "faults")
numbers: dict[str, Counter[str]] = {}  # number of scripts in soak tests: by binding and ranks, by verdict


def line(name: str) -> str:
    count = numbers[name]
    return f"{name}: {sum(count.values())} scripts, {', '.join(f'{count[one]} {one}' for one in VERDICTS)}"


@dataclass
class Judge:
    """Runs and judges the scripts of one binding."""

    binding: str
    scripts: SearchStrategy[Any]
    refused: dict[str, Sequence[str]]  # part of an error's text -> the statements that may raise it
    variables: dict[str, str] = field(default_factory=dict)
    pool: str = ""  # name of the pool of rank jobs
    limit: float = LIMIT  # seconds per script

    def check(self, ranks: int, script: Any, mutant: str = "") -> str:
        """Returns the text of the error if the script is refused.

        Fails if the refusal is not expected, or the result is wrong.
        """
        text = str(script)
        said = "".join(f"{name}={value} " for name, value in self.variables.items())
        shown = HEADER.format(ranks=ranks, text=text, binding=self.binding, variables=said)
        variables = self.variables | {"PYTHONPATH": PATHS}
        arguments = text, self.binding, mutant
        try:
            result = mpi_case.run(
                ranks, judge, *arguments, limit=self.limit, variables=variables, leaves=True, pool=self.pool
            )
        except AssertionError as error:
            raise AssertionError(f"{shown}\n{error}") from None
        verdict, why = json.loads(result.output.splitlines()[-1])
        right = verdict == "right" or (
            verdict == "refused" and (why.startswith("as by the framework") or self.refusable(text, why))
        )
        assert right, f"{shown}\n{verdict}: {why}"
        return why if verdict == "refused" else ""

    def refusable(self, text: str, why: str) -> bool:
        """Returns whether the script has a statement that may raise this error."""
        return any(
            message in why and any(one in text for one in statements) for message, statements in self.refused.items()
        )

    def draws(self, ranks: int, examples: int, **named: Any) -> None:
        @settings(QUIET, max_examples=examples, **named)
        @given(self.scripts)
        def run(script: Any) -> None:
            self.check(ranks, script)

        run()

    def soaks(self, ranks: int, scripts: int, capture: Any) -> None:
        """Judges new scripts, prints progress at intervals, and fails at the end with all faults.

        `capture`: pytest's fixture capfd. The environment's SOAK_SCRIPTS replaces `scripts`.
        """
        name = f"{' '.join([self.binding, *self.variables.values()])} on {ranks} ranks"
        count, faults = numbers.setdefault(name, Counter()), list[str]()

        @settings(
            QUIET, max_examples=int(os.environ.get("SOAK_SCRIPTS", scripts)), database=None, phases=[Phase.generate]
        )
        @given(self.scripts)
        def run(script: Any) -> None:
            try:
                count["refused" if self.check(ranks, script) else "right"] += 1
            except AssertionError as error:
                count["faults"] += 1
                faults.append(str(error))
            if sum(count.values()) % 50 == 0:
                with capture.disabled():
                    print(line(name), flush=True)

        run()
        assert not faults, "\n\n".join(faults)

    def finds(self, mutant: str, examples: int = 200) -> None:
        """Fails unless drawn scripts detect the mutant by comparison, not by an error or a hang."""

        def differs(script: Any) -> bool:
            try:
                self.check(2, script, mutant)
            except AssertionError as error:
                return "is not close" in str(error)
            return False

        only = settings(QUIET, max_examples=examples, phases=[Phase.generate], database=None)
        find(self.scripts, differs, settings=only)
