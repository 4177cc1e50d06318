"""Elastic jobs of TensorFlow, Keras and JAX: a killed rank does not change the weights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import launching  # noqa: E402
from test_frameworks import missing, on  # noqa: E402

RINGRUN = ["-m", "ringcomm", "run", "-np", "3", "--min-np", "2"]
LOOPS = [3] * 3 + [2] * 5  # number of ranks in each batch; a rank dies in the fourth
FIT = [3] * 6 + [2] * 6
KILLED = [  # script, Keras' backend, options
    ("tensorflow_loop", "tensorflow", ["--kill", "3"], LOOPS),
    ("jax_loop", "jax", ["--kill", "3"], LOOPS),
    ("keras_fit", "jax", ["--kill", "1", "2"], FIT),
    ("keras_fit", "tensorflow", ["--kill", "1", "2"], FIT),
    ("keras_fit", "torch", ["--kill", "1", "2"], FIT),
]
SLOW = [job for job in KILLED if job[0] != "jax_loop"]


def run(folder: Path, name: str, backend: str, *options: str) -> str:
    """Returns the standard output of a job that must succeed."""
    needed = [backend, *(["optax"] if name == "jax_loop" else []), *(["keras"] if name == "keras_fit" else [])]
    if why := missing(*needed):
        pytest.skip(why)
    script = [sys.executable, str(HERE / "elastic" / f"{name}.py"), *options]
    how = ["--as-horovod"] if name == "tensorflow_loop" else []
    return launching.output_of([*RINGRUN, *how, *script], folder, timeout=200, variables=on(backend))


def sizes(output: str) -> list[int]:
    (line,) = [line for line in output.splitlines() if "sizes" in line]
    assert line.endswith(" as in one process") and " not " not in line, output
    return [int(word) for word in line.partition("sizes")[2].split() if word.isdigit()]


@pytest.mark.parametrize(
    "job",
    [pytest.param(job, id="-".join(job[:2]), marks=pytest.mark.slow if job in SLOW else []) for job in KILLED],
)
def test_a_rank_is_killed(job: tuple[str, str, list[str], list[int]], tmp_path: Path) -> None:
    name, backend, options, expected = job
    output = run(tmp_path, name, backend, *options)
    assert sizes(output) == expected
    assert all(f"rank {rank} of 2 goes on at" in output for rank in range(2)), output


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, backend", [("tensorflow_loop", "tensorflow"), ("jax_loop", "jax"), ("keras_fit", "jax")]
)
def test_no_rank_is_killed(name: str, backend: str, tmp_path: Path) -> None:
    output = run(tmp_path, name, backend)
    assert set(sizes(output)) == {3} and "goes on at" not in output
