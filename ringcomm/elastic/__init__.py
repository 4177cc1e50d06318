"""Elastic training: a function that goes on, from its last commit, when ranks are lost or come.

::

    @ringcomm.elastic.run
    def train(state):
        while state.batch < 1000:
            ...
            state.batch += 1
            state.commit()

    train(ringcomm.elastic.ObjectState(weights=weights, batch=0))

started by ``ringrun -np 4 --min-np 2 python train.py``. `ringcomm.torch.elastic` and the like know models and
optimizers. docs/elastic.md says what is kept and what is lost.
"""

from ringcomm._src.elastic.member.running import run, run_fn
from ringcomm._src.elastic.member.state import ObjectState, State

__all__ = ["ObjectState", "State", "run", "run_fn"]
