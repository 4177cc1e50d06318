"""The decorator of training functions in elastic JAX jobs, which `ringcomm.jax.elastic` exports."""

from __future__ import annotations

import jax

from ringcomm._src.elastic.member import translating
from ringcomm._src.elastic.member.running import Function
from ringcomm._src.jax import packing  # noqa: F401  registers the packing of arrays

__all__ = ["run"]


def run(func: Function) -> Function:
    """Decorates a training function as :func:`ringcomm.elastic.run` does.

    It also recognises the loss of a rank in errors of compiled programs.

    Parameters
    ----------
    func : Callable
        A function of (state, ...).

    Returns
    -------
    Callable
        A function with the same arguments and result.

    Raises
    ------
    HorovodInternalError
        A rank was lost outside of an elastic job (PeerLostError, RankLeftError).

    Examples
    --------
    >>> @hvd.elastic.run
    ... def train(state):
    ...     while state.step < 3:
    ...         state.step += 1
    ...         state.commit()
    ...     return state.step
    >>> train(hvd.elastic.ObjectState(step=0))
    3
    """
    return translating.run(func, jax.errors.JaxRuntimeError)
