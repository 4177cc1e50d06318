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

from ringcomm._src.elastic.member.state import ObjectState, State
from ringcomm._src.jax.elastic import run

__all__ = ["ObjectState", "State", "run"]
