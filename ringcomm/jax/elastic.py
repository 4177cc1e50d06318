"""Elastic training with JAX: a state's attributes are pytrees and other objects that pickle.

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
    moments = optimizer.init(parameters)
    train(rc.elastic.ObjectState(parameters=parameters, moments=moments, step=0))

``step`` may be compiled and donate its arguments (``donate_argnums``): a commit copies them. After
a change of the number of ranks, each rank is a new process, which traces its programs again. Random
keys are restored unchanged.
"""

from ringcomm._src.elastic.member.state import ObjectState, State
from ringcomm._src.jax.elastic import run

__all__ = ["ObjectState", "State", "run"]
