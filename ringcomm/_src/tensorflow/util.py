"""Helpers that libraries import from ``horovod.tensorflow.util``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _make_subgraph(f: Callable[..., Any]) -> Any:
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Caches results by arguments, with separate entries for eager mode and for graphs."""
    known: dict[Any, Any] = {}

    def wrapper(*args: Any) -> Any:
        key = args, _executing_eagerly()
        if key not in known:
            known[key] = f(*args)
        return known[key]

    return wrapper


def vars_to_refs(vars: Any) -> Any:
    """Converts variables to references and lists to tuples, for use as a cache key."""
    return tuple(vars_to_refs(one) for one in vars) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Undoes :func:`vars_to_refs`."""
    return [refs_to_vars(one) for one in refs] if isinstance(refs, tuple) else refs.deref()
