"""Elastic training with Keras, on all of its backends: a drop-in for ``horovod.keras.elastic``.

::

    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state),       # last: commits the progress recorded above
    ]

    @hvd.elastic.run
    def train(state):
        epochs, steps = 24 - state.epoch, 500 // hvd.size()
        model.fit(dataset, epochs=epochs, steps_per_epoch=steps, callbacks=callbacks)

    train(state)
"""

from ringcomm._src.keras.elastic.callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from ringcomm._src.keras.elastic.running import run
from ringcomm._src.keras.elastic.state import KerasState

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
