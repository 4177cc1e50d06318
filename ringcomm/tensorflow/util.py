"""Helpers for graphs and variables, under Horovod's module name."""

from ringcomm._src.tensorflow.util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs  # noqa: F401

__all__ = [
    "refs_to_vars",
    "vars_to_refs",
]
