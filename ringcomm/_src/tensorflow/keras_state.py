"""The name that Horovod has for a state of Keras' models beside TensorFlow."""

from __future__ import annotations

from typing import Any

from ringcomm._src.keras.elastic.state import KerasState


class TensorFlowKerasState(KerasState):
    """:class:`ringcomm.keras.elastic.KerasState`. ``backend``: accepted because Horovod has it; not needed."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)
