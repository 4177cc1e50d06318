"""The examples in the docstrings of public names run on two ranks, and every name has one.

tests/bindings/frameworks/test_framework_examples.py does the same for TensorFlow, Keras and JAX.
"""

from __future__ import annotations

import sys
from pathlib import Path

import docstring_examples
import launching
import pytest

sys.path.insert(0, str(launching.ROOT / "tests" / "unit"))
from public_names import imported, module_names

HERE = Path(__file__).resolve().parent
OTHERS = ("ringcomm.tensorflow", "ringcomm.keras", "ringcomm.jax", "ringcomm.spark", "ringcomm.ray")
MODULES = [name for name in module_names() if not name.startswith(OTHERS)]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_examples(name: str) -> None:
    module = imported(name)
    if module is not None:
        assert not docstring_examples.without_example(module)


def test_examples_run(tmp_path: Path) -> None:
    names = [name for name in MODULES if imported(name) is not None]
    done = launching.run([docstring_examples.__file__, *names], tmp_path, ranks=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout


def test_a_wrong_example_fails(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "def f():\n    '''Returns 1.\n\n    >>> 1 + 1\n    3\n    '''\n"
        "f.__module__ = 'ringcomm.wrong'\n__all__ = ['f']\n"
    )
    done = launching.run([docstring_examples.__file__, "wrong"], tmp_path, variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "Got:\n    2" in done.stdout
