"""Scripts written for Horovod run unchanged, or after a change of one line: the import."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import mpi_case  # noqa: E402
from launching import output_of  # noqa: E402

THEIRS, OURS = "import horovod.torch as hvd\n", "import ringcomm.torch as hvd\n"
RINGRUN = ["-m", "ringcomm", "run", "--no-tag-output", "--as-horovod"]


def run(folder: Path, name: str, *arguments: str, ranks: int = 2) -> str:
    """Runs a script unchanged, in a job that cases share."""
    return mpi_case.run(ranks, as_horovod, [str(HERE / f"{name}.py"), *arguments], str(folder), limit=240).output


def as_horovod(arguments: list[str], folder: str) -> None:
    import ringcomm.as_horovod  # noqa: F401

    mpi_case.run_python(arguments, folder)


def run_by_ringrun(folder: Path, name: str, *arguments: str, ranks: int = 2) -> str:
    """Runs a script unchanged, by ringrun."""
    return output_of([*RINGRUN, "-np", str(ranks), sys.executable, HERE / f"{name}.py", *arguments], folder)


def run_changed(folder: Path, name: str, *arguments: str, ranks: int = 2) -> str:
    """Runs a script with ringcomm's import, by MPI's launcher."""
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(THEIRS) == 1 and text.count("horovod") == 1
    script = folder / f"{name}.py"
    script.write_text(text.replace(THEIRS, OURS), encoding="utf-8")
    return output_of([script, *arguments], folder, ranks)


def numbers(output: str, *names: str) -> list[float]:
    return [float(re.findall(rf"\b{name} ([-+.e\d]+)", output)[-1]) for name in names]


DIGITS = {
    "plain": (run_changed, []),
    "fp16": (
        run_by_ringrun,
        ["--fp16-allreduce", "--gradient-predivide-factor", "2", "--use-mixed-precision", "--workers", "1"],
    ),
    "adasum": (run, ["--use-adasum", "--base-lr", "0.05"]),
}


@pytest.mark.parametrize(
    "start, options",
    [pytest.param(*one, id=name, marks=[] if name == "plain" else pytest.mark.slow) for name, one in DIGITS.items()],
)
def test_digits(tmp_path: Path, start: Callable[..., str], options: list[str]) -> None:
    output = start(tmp_path, "digits", *options)
    loss, accuracy = numbers(output, "loss", "accuracy")
    assert accuracy > 0.88 and loss < 0.6, output
    assert output.count("accuracy") == 5 and "ranks agree" in output


@pytest.mark.parametrize("option", ["--fp16-allreduce", "--use-adasum"])
def test_synthetic_benchmark(tmp_path: Path, option: str) -> None:
    output = run(tmp_path, "synthetic_benchmark", option)
    assert output.count("Iter #") == 3 and "on 2 CPU(s)" in output and "ranks agree" in output


def test_gradient_accumulation_equals_one_process(tmp_path: Path) -> None:
    ranks, alone = (run(tmp_path, "gradient_accumulation", ranks=n) for n in (2, 0))
    assert numbers(ranks, "norm", "checksum") == pytest.approx(numbers(alone, "norm", "checksum"), rel=1e-6)
    assert numbers(ranks, "spread") == [0.0]


def test_gan_equals_one_process(tmp_path: Path) -> None:
    ranks, alone = (run(tmp_path, "gan", ranks=n) for n in (2, 0))
    names = ("loss_d", "loss_g", "checksum")
    assert numbers(ranks, *names) == pytest.approx(numbers(alone, *names), rel=1e-6)
    assert numbers(ranks, "spread") == [0.0]


def test_unused_parameters(tmp_path: Path) -> None:
    output = run(tmp_path, "unused_parameters")
    assert "ranks agree" in output and "unused weights stay" in output
    assert "state of 10 parameters" in output  # one parameter of the stem and those of four branches


def test_uneven_batches(tmp_path: Path) -> None:
    output = run(tmp_path, "uneven_batches", ranks=3)
    last, first, final = numbers(output, "last", "first", "final")
    assert "ranks agree" in output and last == 2 and final < first / 2, output


# ---- elastic ---------------------------------------------------------------------------------------------------------
def run_elastic(folder: Path, name: str, *arguments: str) -> str:
    words = [*RINGRUN, "-np", "3", "--min-np", "2", sys.executable, HERE / f"{name}.py", *arguments]
    return output_of(words, folder)


@pytest.mark.parametrize(
    "kill", [pytest.param([], id="whole", marks=pytest.mark.slow), pytest.param(["--kill", "2", "4"], id="killed")]
)
def test_elastic_classifier(tmp_path: Path, kill: list[str]) -> None:
    output = run_elastic(tmp_path, "elastic_classifier", *kill)
    assert numbers(output, "accuracy")[0] > 0.8 and "ranks agree" in output, output
    assert [f"rank {rank} of 2 goes on at epoch 2 batch 3" in output for rank in range(2)] == 2 * [bool(kill)], output


@pytest.mark.slow
def test_elastic_benchmark(tmp_path: Path) -> None:
    """Work that a killed rank has seen finished is not repeated."""
    output = run_elastic(tmp_path, "elastic_benchmark", "--kill", "2")
    assert re.findall(r"Iter #(\d+): \S+ img/sec on (\d)", output) == [("0", "3"), ("1", "3"), ("2", "2"), ("3", "2")]
    assert "4 iterations, the last on 2 CPU(s), lr 0.02" in output
