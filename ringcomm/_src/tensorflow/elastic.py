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
    """Decorates a training function as :func:`ringcomm.elastic.run` does.

    It also recognises the loss of a rank in errors of TensorFlow's graphs.

    Parameters
    ----------
    func : Callable
        A function of (state, ...).

    Returns
    -------
    Callable
        A function with the same arguments and result.

    Raises
    ------
    HorovodInternalError
        A rank was lost outside of an elastic job (PeerLostError, RankLeftError).

    Examples
    --------
    >>> @hvd.elastic.run
    ... def train(state):
    ...     while state.batch < 3:
    ...         state.batch += 1
    ...         state.commit()
    ...     return state.batch
    >>> train(hvd.elastic.TensorFlowState([tf.Variable(1.0)], batch=0))
    3
    """
    return translating.run(func, tf.errors.OpError)


class TensorFlowState(VariablesState):
    """An elastic state of ``tf.Variable`` objects and attributes.

    Parameters
    ----------
    variables : Sequence[tf.Variable] | None
        The same variables in the same order on every rank; None: TensorFlow's global variables.
    session : None
        Accepted because Horovod has it; must be None.
    kwargs : Any
        The attributes, with their initial values.

    Raises
    ------
    ValueError
        A session is passed, execution is not eager, or there are no variables.

    Examples
    --------
    >>> weight = tf.Variable(1.0)
    >>> state = hvd.elastic.TensorFlowState([weight], batch=0)
    >>> _ = weight.assign(2.0)
    >>> state.batch = 7
    >>> state.restore()                                # the last commit, here the initial state
    >>> float(weight), state.batch
    (1.0, 0)
    """

    def __init__(self, variables: Sequence[tf.Variable] | None = None, session: Any = None, **kwargs: Any) -> None:
        if session is not None or not tf.executing_eagerly():
            raise ValueError(
                "TensorFlowState needs eager execution and session=None: it does not support TensorFlow 1 sessions"
            )
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        if not self.variables:
            raise ValueError(
                "TensorFlowState needs a list of variables: eager TensorFlow has no list of global variables"
            )
        super().__init__(**kwargs)

    def tracked(self) -> Sequence[Any]:
        return self.variables

    def value_of(self, variable: Any) -> Any:
        return tf.convert_to_tensor(variable)

    def broadcast(self, variables: Sequence[Any]) -> None:
        broadcast_variables(variables, 0)
