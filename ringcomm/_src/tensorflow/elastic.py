"""Elastic training with TensorFlow: states of variables, and the wrapper of the training function.

`ringcomm.tensorflow.elastic` holds the public names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ringcomm._src.elastic.member import translating
from ringcomm._src.elastic.member.running import Function
from ringcomm._src.elastic.member.variables import VariablesState
from ringcomm._src.tensorflow import packing  # noqa: F401  registers the packing of tensors
from ringcomm._src.tensorflow.functions import broadcast_variables

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name == "TensorFlowKerasState":  # imports Keras only when it is used
        from ringcomm._src.tensorflow.keras_state import TensorFlowKerasState

        return TensorFlowKerasState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run(func: Function) -> Function:
    """Wraps a training function as :func:`ringcomm.elastic.run` does, and also detects lost ranks by errors of graphs.

    Raises:
        HorovodInternalError: a rank was lost outside of an elastic job (PeerLostError, RankLeftError).
    """
    return translating.run(func, tf.errors.OpError)


class TensorFlowState(VariablesState):
    """An elastic state of ``tf.Variable`` objects and attributes.

    Args:
        variables: the same number in the same order in every process; None: TensorFlow's global variables.
        session: None. Accepted because Horovod has it.
        kwargs: the attributes, with their initial values.

    Raises:
        ValueError: a session is given, execution is not eager, or there are no variables.
    """

    def __init__(self, variables: Sequence[tf.Variable] | None = None, session: Any = None, **kwargs: Any) -> None:
        if session is not None or not tf.executing_eagerly():
            raise ValueError("states are of eager variables: there are none of sessions of TensorFlow 1")
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        if not self.variables:
            raise ValueError("give the variables: eagerly, TensorFlow has no list of them")
        super().__init__(**kwargs)

    def tracked(self) -> Sequence[Any]:
        return self.variables

    def value_of(self, variable: Any) -> Any:
        return tf.convert_to_tensor(variable)

    def broadcast(self, variables: Sequence[Any]) -> None:
        broadcast_variables(variables, 0)
