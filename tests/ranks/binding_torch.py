"""`ringcomm.torch`, as `script_ranks` judges it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mutants import MUTANTS
from plain_hvd import PlainHvd as Plain
from user_names import User

import ringcomm.torch as product

__all__ = ["FAILURES", "MUTANTS", "Plain", "User", "is_single", "mutated", "product"]

FAILURES: tuple[type[Exception], ...] = ()  # of the framework, with the names of ringcomm's errors in their texts


def is_single(text: str) -> bool:
    """Returns True if the script computes in float32."""
    return "odd()" in text or "float()" in text


@contextlib.contextmanager
def mutated(name: str, plain: Any) -> Iterator[Any]:
    plain.optimizer_class = MUTANTS[name]
    yield plain
