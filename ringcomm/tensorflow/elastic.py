"""Elastic training with TensorFlow: a drop-in for ``horovod.tensorflow.elastic``.

::

    @hvd.elastic.run
    def train(state):
        for x, y in dataset.skip(state.batch).take(1000 - state.batch):
            step(x, y)
            state.batch += 1
            state.commit()

    train(hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0))
"""

from ringcomm._src.tensorflow.elastic import *  # noqa: F403
from ringcomm._src.tensorflow.elastic import __all__, __getattr__  # noqa: F401
