"""The build of wheels (examples/deploy/wheels), and the symbols that the extension exports."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ringcomm._src.core import _core

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "deploy" / "wheels" / "build_wheels.py"
OBJCOPY = f"{platform.machine()}-linux-gnu-objcopy"


@pytest.fixture(scope="module")
def build_wheels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_wheels", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def test_the_extension_exports_its_entry_alone() -> None:
    """Symbols (operator delete, templates of C++) must not conflict with other libraries."""
    lines = output("nm", "-D", "--defined-only", _core.__file__).splitlines()
    assert [line.split()[-1] for line in lines] == ["PyInit__core"]


def test_names_for_another_processor(build_wheels: ModuleType) -> None:
    assert build_wheels.target(sys.executable, platform.machine()) == {}
    assert build_wheels.target(sys.executable, "riscv64") == {
        "_PYTHON_HOST_PLATFORM": "linux-riscv64",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-3{sys.version_info.minor}-riscv64-linux-gnu.so",
    }


@pytest.mark.skipif(shutil.which(OBJCOPY) is None, reason=f"no {OBJCOPY}")
def test_symbols_are_apart(build_wheels: ModuleType, tmp_path: Path) -> None:
    source, library = tmp_path / "f.c", tmp_path / "f.so"
    source.write_text("int shown(int x) { return x; }\n")
    output("cc", "-g1", "-shared", "-fPIC", source, "-o", library)
    build_wheels.split_symbols(library, platform.machine(), tmp_path / "symbols")
    symbols = tmp_path / "symbols" / "f.so.debug"
    assert ".debug_info" not in output("readelf", "-S", library)
    assert ".debug_info" in output("readelf", "-S", symbols)
    assert symbols.name.encode() in library.read_bytes()
