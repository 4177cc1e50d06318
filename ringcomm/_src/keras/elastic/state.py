"""The elastic state of a Keras model and its optimizer, on any backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ringcomm._src.elastic.member.variables import VariablesState
from ringcomm._src.keras.backends import bring_up_to_date, module_of_backend
from ringcomm._src.keras.functions import broadcast_variables


class KerasState(VariablesState):
    """An elastic state of a Keras model, its optimizer, and attributes.

    Args:
        model: a built model. The state contains its weights, layer states (means of BatchNorm) and states of random
            generators (of Dropout).
        optimizer: None: the optimizer that the model was compiled with, if any. It is built here if necessary.
        kwargs: the attributes, with their initial values: batch=0, epoch=0.

    Raises:
        ValueError: the model is not built; on restoring: the commit is of a different model.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("the model has no variables yet: call model.build(input_shape) before")
        module_of_backend("elastic")  # importing it registers the packing of the backend's tensors
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
