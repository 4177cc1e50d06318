"""Elastic training: a function that continues from its last commit when ranks are lost or added.

::

    @ringcomm.elastic.run
    def train(state):
        while state.batch < 1000:
            ...
            state.batch += 1
            state.commit()

    train(ringcomm.elastic.ObjectState(weights=weights, batch=0))

Start it by ``ringrun -np 4 --min-np 2 python train.py``. The frameworks' elastic modules, such as
`ringcomm.torch.elastic`, have states for models and optimizers. docs/elastic.md describes what
survives the loss of ranks.
"""

from ringcomm._src.elastic.member.running import run, run_fn
from ringcomm._src.elastic.member.state import ObjectState, State

__all__ = ["ObjectState", "State", "run", "run_fn"]
