"""A model and its optimizer, on whatever backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ringcomm._src.elastic.member.variables import VariablesState
from ringcomm._src.keras.backends import bring_up_to_date, module_of_backend
from ringcomm._src.keras.functions import broadcast_variables


class KerasState(VariablesState):
    """A Keras model, its optimizer, and attributes.

    Args:
        model: built; its weights, states of layers (BatchNorm's means) and of random generators (Dropout's) are kept.
        optimizer: None: the one that the model was compiled with, if it was. It is built here, if it has not been.
        kwargs: the attributes, with what they are at first: batch=0, epoch=0.

    Raises:
        ValueError: if the model is not built; and, on restoring, if what was kept is of another model.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("the model has no variables yet: call model.build(input_shape) before")
        module_of_backend("elastic")  # from now on the backend's tensors are packed
        self.model = model
        self.optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        super().__init__(**kwargs)

    def tracked(self) -> Sequence[Any]:
        bring_up_to_date(self.model)
        return [*self.model.variables, *(self.optimizer.variables if self.optimizer is not None else ())]

    def value_of(self, variable: Any) -> Any:
        return keras.ops.convert_to_tensor(variable)

    def broadcast(self, variables: Sequence[Any]) -> None:
        broadcast_variables(variables, 0)
