"""Elastic training with JAX: a state's attributes are pytrees, and whatever else can be pickled.

::

    import ringcomm.jax as rc

    rc.init()
    optimizer = rc.distributed(optax.adam(1e-3))


    @rc.elastic.run
    def train(state):
        while state.step < 1000:
            batch = batch_of(state.step, rc.rank(), rc.size())
            state.parameters, state.moments = step(state.parameters, state.moments, batch)
            state.step += 1
            state.commit()


    parameters = make_parameters(jax.random.key(0))
    state = rc.elastic.ObjectState(parameters=parameters, moments=optimizer.init(parameters), step=0)
    train(state)

``step`` may be compiled and give its arguments away (``donate_argnums``): a commit has copied them. What was traced for
one number of ranks is traced anew for another, for that is another process. Random keys come back as they were.
"""

from __future__ import annotations

import jax

from ringcomm.elastic import ObjectState, State, translating
from ringcomm.elastic.running import Function
from ringcomm.jax import packing  # noqa: F401  arrays are packed

__all__ = ["ObjectState", "State", "run"]


def run(func: Function) -> Function:
    """:func:`ringcomm.elastic.run`, which also knows a lost rank by the error of a compiled program.

    Raises:
        HorovodInternalError: outside of an elastic job, where a rank was lost: PeerLostError, RankLeftError.
    """
    return translating.run(func, jax.errors.JaxRuntimeError)
