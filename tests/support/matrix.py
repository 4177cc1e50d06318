"""Installs and tests ringcomm with different versions of Python, frameworks, NumPy and MPI.

It writes the results into docs/compatibility.md.

    python tests/support/matrix.py [--cells 3.12 openmpi] [--pythons FOLDER]     # make test-matrix runs all cells

A cell is one combination. `uv` makes its environment in build/matrix, and links the packages that
environments share. A cell that this machine cannot test leaves its row of the table unchanged.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from launching import ROOT, environment
from tables import DEBIAN, loaded, write_rows

PAGE = ROOT / "docs/compatibility.md"
FOLDER = ROOT / "build/matrix"
NEWEST = "2.13.0"  # the version of PyTorch that the other test targets use
# The oldest PyTorch of each Python that ringcomm supports, and a NumPy of the same time.
OLDEST = {
    "3.10": ("2.1.2", "1.26.*"),
    "3.11": ("2.1.2", "1.26.*"),
    "3.12": ("2.2.2", "1.26.*"),
    "3.13": ("2.6.0", "2.1.*"),  # 2.5 is the first version with a wheel, but torch.save fails there
    "3.14": ("2.9.1", "2.3.*"),
}
# The oldest and newest versions of the other frameworks, with the NumPy that they require.
OTHERS = {
    "tensorflow": (["tensorflow==2.17.*", "keras==3.8.*"], ["tensorflow", "keras"]),
    "jax": (["jax==0.7.0", "optax", "keras==3.12.*"], ["jax", "optax", "keras"]),
}
PACKAGES = {"mpich": ["mpich"], "openmpi": ["openmpi"], "intel": ["impi-rt"]}

# These are about 100 tests that compile nothing and take less than a minute.
TESTS = [
    ROOT / f"tests/{name}.py"
    for name in (
        "unit/calls/test_arguments",
        "ranks/test_named",
        "unit/base/test_ops",
        "unit/communicator/test_threads",
    )
]
TORCH_TESTS = [ROOT / "tests/unit/arrays/test_arrays.py", ROOT / "tests/bindings/torch/test_torch_buckets.py"]
CASES = {
    "torch": ["cases_autograd,cases_elastic,cases_functions,cases_join,cases_ops,cases_optimizer"],
    "tensorflow": ["cases_tensorflow", "cases_keras", "cases_elastic_states,cases_elastic_callbacks"],
    "jax": ["cases_jax,cases_jax_transforms", "cases_keras", "cases_elastic_states,cases_elastic_callbacks"],
}
EXAMPLES = {"torch": "train_digits.py", "tensorflow": "tensorflow_digits.py", "jax": "jax_digits.py"}
VERSIONS = """
import platform, sys, numpy, mpi4py
from importlib.metadata import version
mpi4py.rc.initialize = False
from mpi4py import MPI
found = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "keras": "Keras"}
kinds = ", ".join(f"{found[one]} {version(one).partition('+')[0]}" for one in sys.argv[1:])
name, number = MPI.get_vendor()
print(platform.python_version(), kinds, numpy.__version__, f"{name} {'.'.join(map(str, number))}", sep="|")
"""


class CannotTry(Exception):
    """The error for a cell that needs something this machine does not have."""


class Cell(NamedTuple):
    python: str
    oldest: bool
    mpi: str
    framework: str = "torch"

    @property
    def name(self) -> str:
        words = [self.python, "oldest" if self.oldest else "newest", self.mpi]
        return "-".join([*words, self.framework] if self.framework in OTHERS else words)

    def requirements(self) -> list[str]:
        if self.framework in OTHERS:
            oldest, newest = OTHERS[self.framework]
            return [*(oldest if self.oldest else newest), *PACKAGES[self.mpi]]
        torch, numpy = OLDEST[self.python] if self.oldest else (NEWEST, "")
        return [f"torch=={torch}", f"numpy=={numpy}" if numpy else "numpy", *PACKAGES.get(self.mpi, [])]


CELLS = [
    *(Cell(python, oldest, "mpich") for python in OLDEST for oldest in (False, True)),
    *(Cell("3.11", False, mpi) for mpi in ("openmpi", "intel", *(f"debian-{name}" for name in DEBIAN))),
    *(Cell("3.11", oldest, "mpich", framework) for framework in OTHERS for oldest in (False, True)),
]


def run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], limit: float = 600) -> str:
    """Returns the command's output. Raises RuntimeError with its last line if it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            env=environment() | dict(variables),
            timeout=limit,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"not done after {limit:.0f} s") from error
    if done.returncode:
        print(done.stdout, flush=True)
        raise RuntimeError(failure(done.stdout))
    return done.stdout


def failure(text: str) -> str:
    """Returns a log's words on the failure: failed tests, last exception, or last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no output"]
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?(test_\w+)\.py", text, re.MULTILINE)
    if failed:
        return f"{len(failed)} tests fail: {', '.join(dict.fromkeys(failed))}"
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines)[-1][:150].replace("|", "/")


def find_python(version: str, folder: Path | None) -> Path:
    found = shutil.which(f"python{version}")
    if folder:  # FOLDER/3.12.1/bin/python3.12, or FOLDER/bin/python3.12
        candidates = sorted(folder.glob(f"**/bin/python{version}"))
        found = str(candidates[-1]) if candidates else found
    if not found or subprocess.run([found, "-c", ""], capture_output=True).returncode:
        raise CannotTry(f"no python{version}")
    return Path(found)


def wheel(python: Path, version: str) -> Path:
    """Builds the wheel for this Python; CMake's folder in build/ makes later builds short."""
    made = FOLDER / "wheels" / version
    shutil.rmtree(made, ignore_errors=True)  # it may be from another commit
    run(["uv", "build", "-q", "--wheel", "-p", python, "-o", made, "."], ROOT, {}, 1800)
    return next(made.glob("*.whl"))


def install(cell: Cell, folder: Path, built: Path, python: Path) -> None:
    if not (folder / "bin").exists():
        run(["uv", "venv", "-q", "-p", python, folder], ROOT, {})
    pip = ["uv", "pip", "install", "-q", "-p", folder]
    run([*pip, *cell.requirements(), f"ringcomm[test,{cell.framework}] @ {built.as_uri()}"], ROOT, {}, 1800)
    run([*pip, "--no-deps", "--reinstall", built], ROOT, {})


def debian(cell: Cell, folder: Path) -> dict[str, str]:
    """Links Debian's MPI into the environment; returns the variables by which mpi4py loads it."""
    kind = cell.mpi.removeprefix("debian-")
    source, command = DEBIAN[kind], shutil.which(launcher := f"mpiexec.{kind}")
    if not (source.exists() and command):
        raise CannotTry(f"no {source} or no {launcher}")
    beside = folder / "lib/mpi"
    beside.mkdir(exist_ok=True)
    # a script, because MPICH's launcher looks for its helpers next to the name by which it is
    # called
    start = folder / "bin/mpiexec"
    start.unlink(missing_ok=True)
    start.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    start.chmod(0o755)
    return loaded(source, beside)


def train(cell: Cell, folder: Path, variables: Mapping[str, str]) -> None:
    script = ROOT / "examples" / EXAMPLES[cell.framework]
    short = ["--steps", "20", "--output", ""] if cell.framework == "torch" else []
    said = run([folder / "bin/ringrun", "-np", "2", folder / "bin/python", script, *short], folder, variables, 120)
    if "identical bits on all 2 ranks" not in said:
        raise RuntimeError("ranks have different weights")


def check(cell: Cell, folder: Path, variables: Mapping[str, str]) -> str:
    """Runs all parts; returns `passes`, or the parts that fail."""
    python = folder / "bin/python"
    where = ROOT / "tests/bindings" / ("torch" if cell.framework == "torch" else "frameworks")
    program = where / ("run_cases.py" if cell.framework == "torch" else "framework_cases.py")
    there = {**variables, "PYTHONPATH": f"{ROOT / 'tests/support'}:{where}", "KERAS_BACKEND": cell.framework}
    # Tests do not run in ROOT: Python would import the source folder there, not the package.
    pytest = [
        folder / "bin/pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "-c",
        ROOT / "pyproject.toml",
        *TESTS,
        *(TORCH_TESTS if cell.framework == "torch" else []),
    ]
    parts: dict[str, Callable[[], object]] = {
        "import": lambda: run([python, "-c", f"import ringcomm.{cell.framework}"], folder, variables, 120),
        "tests": lambda: run(pytest, folder, variables),
    }
    for modules in CASES[cell.framework]:
        command = [folder / "bin/mpiexec", "-n", "2", python, program, modules]
        parts[f"{modules.partition(',')[0]} on 2 ranks"] = partial(run, command, where, there)
    parts["training"] = lambda: train(cell, folder, variables)
    wrong = []
    for name, part in parts.items():
        try:
            part()
        except RuntimeError as error:
            wrong.append(f"{name}: {error}")
            if name == "import":
                break
    return "; ".join(wrong) or "passes"


def row(cell: Cell, pythons: Path | None) -> str:
    python = find_python(cell.python, pythons)
    folder = FOLDER / cell.name
    install(cell, folder, wheel(python, cell.python), python)
    variables = debian(cell, folder) if cell.mpi.startswith("debian-") else {}
    variables["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    shown = [cell.framework, *(["keras"] if cell.framework in OTHERS else [])]
    versions = run([folder / "bin/python", "-c", VERSIONS, *shown], folder, variables).splitlines()[-1]
    source = " (Debian)" if cell.mpi.startswith("debian-") else " (wheel)"
    return " | ".join([f"| `{cell.name}`", *versions.split("|")]) + f"{source} | {check(cell, folder, variables)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=[""], help="parts of the names of the cells to run")
    parser.add_argument("--pythons", type=Path, help="a folder with interpreters, beside those in PATH")
    parser.add_argument("--list", action="store_true", help="only print the names of the cells")
    options = parser.parse_args()
    results = []
    for cell in CELLS:
        if not any(part in cell.name for part in options.cells):
            continue
        if options.list:
            print(cell.name)
            continue
        try:
            results.append(row(cell, options.pythons))
            write_rows(PAGE, "matrix", [results[-1]])
        except CannotTry as error:
            results.append(f"{cell.name}: not run: {error}")
        except RuntimeError as error:
            results.append(f"{cell.name}: cannot be installed: {error}")
        print(results[-1], flush=True)
    sys.exit(not all("not run" in one or "| passes |" in one for one in results))


if __name__ == "__main__":
    main()
