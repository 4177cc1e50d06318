"""Elastic training with JAX. Public names are in ringcomm.jax.elastic."""

from __future__ import annotations

import jax

from ringcomm._src.elastic.member import translating
from ringcomm._src.elastic.member.running import Function
from ringcomm._src.jax import packing  # noqa: F401  arrays are packed

__all__ = ["run"]


def run(func: Function) -> Function:
    """:func:`ringcomm.elastic.run`, which also knows a lost rank by the error of a compiled program.

    Raises:
        HorovodInternalError: outside of an elastic job, where a rank was lost: PeerLostError, RankLeftError.
    """
    return translating.run(func, jax.errors.JaxRuntimeError)
