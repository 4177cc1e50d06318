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
    cached: dict[Any, Any] = {}

    def wrapper(*args: Any) -> Any:
        key = args, _executing_eagerly()
        if key not in cached:
            cached[key] = f(*args)
        return cached[key]

    return wrapper


def vars_to_refs(vars: Any) -> Any:
    """Converts variables to references and lists to tuples, for use as a cache key.

    Parameters
    ----------
    vars : tf.Variable | list
        A variable, or a nested list of variables.

    Returns
    -------
    Reference | tuple
        A hashable value.

    Examples
    --------
    >>> weight = tf.Variable(1.0)
    >>> hvd.refs_to_vars(hvd.vars_to_refs([weight]))[0] is weight
    True
    """
    return tuple(vars_to_refs(variable) for variable in vars) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Reverses :func:`vars_to_refs`.

    Parameters
    ----------
    refs : Reference | tuple
        The result of :func:`vars_to_refs`.

    Returns
    -------
    tf.Variable | list
        A variable, or a nested list of variables.

    Examples
    --------
    >>> weight = tf.Variable(1.0)
    >>> hvd.refs_to_vars(weight.ref()) is weight
    True
    """
    return [refs_to_vars(ref) for ref in refs] if isinstance(refs, tuple) else refs.deref()
