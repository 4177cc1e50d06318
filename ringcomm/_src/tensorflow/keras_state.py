"""Horovod's name in its TensorFlow package for the elastic state of a Keras model.

It is a module apart from `elastic.py`, so that importing that one does not import Keras.
"""

from __future__ import annotations

from typing import Any

from ringcomm._src.keras.elastic.state import KerasState


class TensorFlowKerasState(KerasState):
    """A :class:`ringcomm.keras.elastic.KerasState`. ``backend`` is accepted because Horovod has it; it is not used."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)
