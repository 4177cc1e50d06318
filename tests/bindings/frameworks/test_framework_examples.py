"""The examples in the docstrings of ringcomm.tensorflow, .keras and .jax run on two ranks.

Every public name has one. tests/ranks/test_docstring_examples.py does the same for the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import docstring_examples
import launching
import pytest

sys.path.insert(0, str(launching.ROOT / "tests" / "unit"))
from public_names import imported, module_names


@pytest.mark.parametrize("framework", ["tensorflow", "keras", "jax"])
def test_examples(framework: str, tmp_path: Path) -> None:
    modules = {name: imported(name) for name in module_names() if name.startswith(f"ringcomm.{framework}")}
    found = {name: module for name, module in modules.items() if module is not None}
    if not found:
        pytest.skip(f"{framework} is not installed: make test-frameworks")
    missing = {name: docstring_examples.without_example(module) for name, module in found.items()}
    assert not any(missing.values()), missing
    done = launching.run([docstring_examples.__file__, *found], tmp_path, ranks=2)
    assert done.returncode == 0, done.stdout + done.stderr
