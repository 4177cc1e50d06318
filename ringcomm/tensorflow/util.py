"""Helpers of graphs and variables. Named as in Horovod."""

from ringcomm._src.tensorflow.util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs  # noqa: F401

__all__ = [
    "refs_to_vars",
    "vars_to_refs",
]
