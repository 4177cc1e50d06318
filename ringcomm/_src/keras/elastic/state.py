"""The elastic state of a Keras model and its optimizer, on any backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ringcomm._src.elastic.member.variables import VariablesState
from ringcomm._src.keras.backends import module_of_backend, sync_jax_state
from ringcomm._src.keras.functions import broadcast_variables


class KerasState(VariablesState):
    """An elastic state of a Keras model, its optimizer, and attributes.

    Parameters
    ----------
    model : keras.Model
        A built model. The state contains its weights, layer states (means of BatchNorm) and states
        of random generators (of Dropout).
    optimizer : keras.optimizers.Optimizer | None
        None: the optimizer that the model was compiled with, if any. It is built here if necessary.
    kwargs : Any
        The attributes, with their initial values: batch=0, epoch=0.

    Raises
    ------
    ValueError
        The model is not built; on restoring: the commit contains a different model.

    Examples
    --------
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    >>> model.set_weights([np.ones((1, 1))])
    >>> state = hvd.elastic.KerasState(model, batch=0)
    >>> model.set_weights([np.zeros((1, 1))])
    >>> state.restore()                                # the last commit, here the initial state
    >>> model.get_weights()[0].tolist()
    [[1.0]]
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("the model has no variables yet: call model.build(input_shape) first")
        module_of_backend("elastic")  # importing it registers the packing of the backend's tensors
        self.model = model
        self.optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        super().__init__(**kwargs)

    def tracked(self) -> Sequence[Any]:
        sync_jax_state(self.model)
        return [*self.model.variables, *(self.optimizer.variables if self.optimizer is not None else ())]

    def value_of(self, variable: Any) -> Any:
        return keras.ops.convert_to_tensor(variable)

    def broadcast(self, variables: Sequence[Any]) -> None:
        broadcast_variables(variables, 0)
