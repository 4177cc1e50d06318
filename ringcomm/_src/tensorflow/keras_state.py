"""The elastic state of a Keras model, under the name that Horovod's TensorFlow package uses.

It is not in `elastic.py`, so that importing that module does not import Keras.
"""

from __future__ import annotations

from typing import Any

from ringcomm._src.keras.elastic.state import KerasState


class TensorFlowKerasState(KerasState):
    """A :class:`ringcomm.keras.elastic.KerasState`, under Horovod's name.

    Parameters
    ----------
    model, optimizer, kwargs
        As for :class:`ringcomm.keras.elastic.KerasState`.
    backend : Any
        Accepted because Horovod has it; not used.

    Examples
    --------
    >>> model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    >>> state = hvd.elastic.TensorFlowKerasState(model, batch=0)
    >>> state.batch = 7
    >>> state.restore()                                # the last commit, here the initial state
    >>> state.batch
    0
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)
