"""Drawn scripts of TensorFlow, Keras and JAX, compared with averaged gradients.

tests/bindings/scripts/ has the templates, the references and the comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
import found_framework_scripts  # noqa: E402
import mpi_case  # noqa: E402
import statements_jax  # noqa: E402
import statements_keras  # noqa: E402
import statements_tensorflow  # noqa: E402
from script_checks import Judge  # noqa: E402
from script_templates import scripts  # noqa: E402
from test_frameworks import missing  # noqa: E402

LIMIT = 150.0  # seconds per script, including the import of a framework


def judge_of(binding: str, statements: object, backend: str) -> Judge:
    variables = {"KERAS_BACKEND": backend}
    return Judge(binding, scripts(statements), statements.REFUSED, variables, f"drawn-{backend}", LIMIT)  # type: ignore[arg-type, attr-defined]


JUDGES = {
    "tensorflow": judge_of("tensorflow", statements_tensorflow, "tensorflow"),
    "jax": judge_of("jax", statements_jax, "jax"),
    "keras-tensorflow": judge_of("keras", statements_keras, "tensorflow"),
    "keras-jax": judge_of("keras", statements_keras, "jax"),
}
NEEDED = {"jax": ["jax", "optax"], "tensorflow": ["tensorflow", "keras"]}
EXAMPLES = {"tensorflow": 9, "jax": 10, "keras-tensorflow": 6, "keras-jax": 6}
MUTANTS = {
    "tensorflow": ["sums_slices", "leaves_out_the_last", "sums_in_the_backward_pass"],
    "jax": ["sums_in_the_backward_pass", "leaves_out_the_last", "sums_what_is_grouped"],
    "keras-tensorflow": ["leaves_out_the_last", "copies_average"],
    "keras-jax": ["leaves_out_the_last", "copies_average"],
}


@pytest.fixture(scope="module", autouse=True)
def jobs_end_well() -> Iterator[None]:
    """Ends jobs after this module, because frameworks in idle jobs hold memory."""
    yield
    wrong = [text for backend in NEEDED for text in mpi_case.close_pools(f"drawn-{backend}")]
    assert not wrong, "\n".join(wrong)


def judge_for(name: str) -> Judge:
    if why := missing(*NEEDED[name.rpartition("-")[2]], *(["keras"] if "keras" in name else [])):
        pytest.skip(why)
    return JUDGES[name]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "tensorflow" else pytest.mark.slow) for name in JUDGES]
)
def test_drawn_scripts(name: str) -> None:
    """Runs the same scripts each time."""
    judge_for(name).draws(2, EXAMPLES[name], derandomize=True, database=None)


@pytest.mark.parametrize("name", found_framework_scripts.SCRIPTS)
def test_found_scripts(name: str) -> None:
    for text in found_framework_scripts.SCRIPTS[name]:
        assert judge_for(name).check(2, text) == ""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", JUDGES)
def test_many_drawn_scripts(name: str, ranks: int, capfd: pytest.CaptureFixture[str]) -> None:
    judge_for(name).soaks(ranks, 1000, capfd)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mutant"), [(name, one) for name, those in MUTANTS.items() for one in those])
def test_mutants_are_found(name: str, mutant: str) -> None:
    judge_for(name).finds(mutant)
