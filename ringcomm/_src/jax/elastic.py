"""The wrapper of the training function in elastic JAX jobs; `ringcomm.jax.elastic` holds the public names."""

from __future__ import annotations

import jax

from ringcomm._src.elastic.member import translating
from ringcomm._src.elastic.member.running import Function
from ringcomm._src.jax import packing  # noqa: F401  registers the packing of arrays

__all__ = ["run"]


def run(func: Function) -> Function:
    """Wraps a function as :func:`ringcomm.elastic.run` does, and detects lost ranks by errors of programs too.

    Raises:
        HorovodInternalError: a rank was lost outside of an elastic job (PeerLostError, RankLeftError).
    """
    return translating.run(func, jax.errors.JaxRuntimeError)
