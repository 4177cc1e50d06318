"""`horovod` is ringcomm: both names give the same objects, by every way of enabling it."""

from __future__ import annotations

import os
import sys

import pytest
from launching import output_of

from ringcomm._src import shims
from ringcomm._src.launch import settings
from ringcomm._src.launch.options import make_parser

PROGRAM = """
import importlib, importlib.util, pkgutil, subprocess, sys
import horovod, horovod.torch as hvd
from horovod.runner import run
from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import allreduce
import ringcomm, ringcomm.torch

assert hvd is ringcomm.torch and Compression is hvd.Compression and allreduce is hvd.allreduce
assert horovod.run is horovod.runner.run is run is ringcomm.run and horovod.__version__ == "0.28.1"
names = ["torch", "common", "data"]
for top in tuple(names):
    package = importlib.import_module(f"ringcomm.{top}")
    found = pkgutil.walk_packages(package.__path__, f"ringcomm.{top}.")
    names += [one.name.removeprefix("ringcomm.") for one in found]
assert len(names) >= 16, names
for name in names:
    ours = importlib.import_module(f"ringcomm.{name}")
    assert importlib.import_module(f"horovod.{name}") is ours, name
    assert ours.__name__ == ours.__spec__.name == f"ringcomm.{name}", name
for name in ("mxnet", "runner.launch", "torch.nonsense"):
    try:
        importlib.import_module(f"horovod.{name}")
    except ImportError as error:
        assert "no counterpart in ringcomm" in str(error) and "\\n" not in str(error), error
    else:
        raise AssertionError(name)
for name in ("tensorflow", "keras", "ray"):  # where there is no such framework, one line says how to get it
    try:
        assert importlib.import_module(f"horovod.{name}") is importlib.import_module(f"ringcomm.{name}")
    except ImportError as error:
        assert f"ringcomm[{name}]" in str(error), error
assert importlib.util.find_spec("horovod.torch")
print("the same")
"""


@pytest.fixture
def program(tmp_path):
    """Yields a file with this program; the installed Horovod raises when it is imported."""
    other = tmp_path / "site" / "horovod"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise RuntimeError('this is not ringcomm')\n")
    path = tmp_path / "program.py"
    path.write_text(f"import sys\nsys.path.append({str(other.parent)!r})\n{PROGRAM}")
    return path


@pytest.mark.parametrize("how", ["by the path", "by an import"])
def test_every_module_is_ours(program, tmp_path, how):
    if how == "by an import":
        program.write_text("import ringcomm.as_horovod\n" + program.read_text())
        arguments = [program]
    else:  # as a module, and in a process that the program starts
        again = f"import os; os.execl({sys.executable!r}, {sys.executable!r}, '-m', 'program')"
        arguments = ["-m", "ringcomm.as_horovod", "-c", again]
    assert output_of(arguments, tmp_path) == "the same\n"


def test_it_is_too_late_after_horovod(tmp_path):
    program = (
        "import sys, types; sys.modules['horovod'] = types.ModuleType('horovod')\n"
        "try: import ringcomm.as_horovod\n"
        "except ImportError as error: print(error)"
    )
    assert "import ringcomm.as_horovod before" in output_of(["-c", program], tmp_path)


def test_ringrun_puts_it_in_front_of_the_path(monkeypatch):
    def path(text):
        options = make_parser().parse_args(text.split())
        return settings.variables(options).get("PYTHONPATH")

    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert path("-np 2 true") is None and path("-np 2 --as-horovod true") == shims.FOLDER
    assert path("-np 2 --as-horovod -x PYTHONPATH=/a true") == f"{shims.FOLDER}{os.pathsep}/a"
    monkeypatch.setenv("PYTHONPATH", "/b")
    assert path("-np 2 --as-horovod true") == f"{shims.FOLDER}{os.pathsep}/b"
