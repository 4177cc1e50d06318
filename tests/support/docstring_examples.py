"""Runs the examples in the docstrings of a public modules: python docstring_examples.py MODULES.

Ranks of a job run them together, so an example may call collectives. Its names are `np`,
`ringcomm`, `comm` (a communicator of all ranks), `rank`, `size` and, for a binding, `hvd` (the
module after `init`) and its framework. Ranks are two, and a printed result must be identical on
both.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

import ringcomm

FRAMEWORKS = {
    "torch": ("torch", "torch"),
    "tensorflow": ("tensorflow", "tf"),
    "keras": ("keras", "keras"),
    "jax": ("jax", "jax"),
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documented(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yields the public classes and functions of `module` that ringcomm defines."""
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if not callable(value) or not (getattr(value, "__module__", None) or "").startswith("ringcomm"):
            continue
        if isinstance(value, type) and issubclass(value, BaseException):
            continue
        if value.__doc__:
            yield name, value


def without_example(module: ModuleType) -> list[str]:
    """Returns the public names whose docstring, or whose methods' docstrings, have no Examples."""
    return [name for name, value in documented(module) if not re.search(r"^Examples?\n---", docstring(value), re.M)]


def docstring(value: Any) -> str:
    """Returns the docstring of `value`, and of its public methods if it is a class."""
    texts = [inspect.getdoc(value) or ""]
    if isinstance(value, type):
        texts += [inspect.getdoc(member) or "" for name, member in vars(value).items() if not name.startswith("_")]
    return "\n\n".join(texts)


def names_of(module: ModuleType, comm: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"np": np, "ringcomm": ringcomm, "comm": comm, "rank": comm.rank, "size": comm.size}
    binding = module.__name__.split(".")[1] if "." in module.__name__ else ""
    if binding == "common":  # shared by all bindings
        binding = "torch"
    names["hvd"] = ringcomm
    if binding in FRAMEWORKS:
        framework, alias = FRAMEWORKS[binding]
        names[alias] = importlib.import_module(framework)
        names["hvd"] = importlib.import_module(f"ringcomm.{binding}")
        names["hvd"].init()
    return names


def run(modules: Sequence[ModuleType]) -> int:
    """Runs all examples. Returns the number of those that failed."""
    parser, runner, seen = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=FLAGS), set()
    with ringcomm.Communicator() as comm:
        for module in modules:
            names = names_of(module, comm)
            for name, value in documented(module):
                text = docstring(value)
                if ">>>" in text and id(value) not in seen:
                    seen.add(id(value))
                    runner.run(
                        parser.get_doctest(text, dict(names), f"{module.__name__}.{name}", None, 0), clear_globs=False
                    )
    if comm.rank == 0:
        print(f"{runner.tries} examples, {runner.failures} failed")
    return runner.failures


if __name__ == "__main__":
    sys.exit(1 if run([importlib.import_module(name) for name in sys.argv[1:]]) else 0)
