"""`ringcomm.torch` for `script_ranks`: its names in scripts, and its reference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mutants import MUTANTS
from plain_hvd import PlainHvd as Plain
from user_names import User

import ringcomm.torch as product

__all__ = ["FAILURES", "MUTANTS", "Plain", "User", "mutated", "product", "tolerance"]

FAILURES: tuple[type[Exception], ...] = ()  # the framework's exceptions whose texts include names of ringcomm's errors


def tolerance(text: str) -> float:
    """Returns the relative tolerance of the script's results."""
    return 1e-3 if "odd()" in text or "float()" in text else 1e-7


@contextlib.contextmanager
def mutated(name: str, plain: Any) -> Iterator[Any]:
    plain.optimizer_class = MUTANTS[name]
    yield plain
