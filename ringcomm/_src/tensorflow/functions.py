"""Broadcasts of variables and objects, allgather of objects, and the replica check for TensorFlow.

`ringcomm.tensorflow` exports these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringcomm._src.core import _core
from ringcomm._src.named import objects
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.tensorflow import operations
from ringcomm._src.training.gradient_lists import names_of, operation_name
from ringcomm._src.training.replicas import compare_now


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Assigns the root's values to the variables. One operation broadcasts all of them.

    Parameters
    ----------
    variables : Sequence[tf.Variable | keras.Variable]
        Variables with the same shapes, dtypes and order on all ranks. Strings are skipped.
    root_rank : int
        Global rank that provides the values.
    process_set : ProcessSet
        The ranks that take part.
    inplace : bool
        Accepted because Horovod has it; not used.

    Returns
    -------
    tf.Operation | None
        None in eager mode and in functions; in a graph of TensorFlow 1, the op that assigns.

    Raises
    ------
    MismatchError
        On every rank, if the number of variables, their shapes or their dtypes differ.
    ValueError
        The root is not in the process set.

    Examples
    --------
    >>> weight = tf.Variable([float(hvd.rank())])
    >>> hvd.broadcast_variables([weight], root_rank=1)
    >>> weight.numpy().tolist()
    [1.0]
    """
    sendable = [variable for variable in variables if tf.as_dtype(_dtype(variable)) != tf.string]
    values = [tf.convert_to_tensor(variable) for variable in sendable]
    names = [f"variables.{operation_name(i, variable)}" for i, variable in enumerate(sendable)]
    received = operations.broadcast(values, root_rank, names, True, process_set)
    assigned = [variable.assign(value) for variable, value in zip(sendable, received, strict=True)]
    in_old_graph = not tf.executing_eagerly() and not tf.inside_function()
    return tf.group(*assigned) if in_old_graph else None


def _dtype(variable: Any) -> Any:
    dtype = variable.dtype
    return dtype.base_dtype if hasattr(dtype, "base_dtype") else dtype


def check_replicas(
    variables: Sequence[Any], name: str = "variables", process_set: ProcessSet = global_process_set
) -> None:
    """Compares variables between the ranks. Collective.

    Call it, for example, before rank 0 saves a checkpoint. Distributed optimizers and tapes compare
    their variables after the first step and every 1,000 steps.

    If variables differ, rank 0 logs a warning. If ``RINGCOMM_REPLICA_CHECK`` is ``error``, every
    rank raises MismatchError instead. The message names the variables, the ranks, the largest
    difference and a step, which is the number of calls with this name.

    Parameters
    ----------
    variables : Sequence[tf.Variable | keras.Variable]
        Variables with the same shapes on all ranks.
    name : str
        Name of the comparison in messages.
    process_set : ProcessSet
        The ranks that compare.

    Raises
    ------
    MismatchError
        On every rank, if variables differ and the option is ``error``.
    ValueError
        It is called in a graph or a ``tf.function``.

    Examples
    --------
    >>> hvd.check_replicas([tf.Variable([1.0, 2.0])])  # identical on all ranks: no warning
    """
    if not tf.executing_eagerly():
        raise ValueError("check_replicas needs values, and a graph has none: call it outside of tf.function")
    sendable = [variable for variable in variables if _dtype_name(variable) in _core.DTYPES]
    compare_now(
        process_set, name, names_of(sendable), [tf.convert_to_tensor(variable).numpy() for variable in sendable]
    )


def _dtype_name(variable: Any) -> str:
    return str(tf.as_dtype(_dtype(variable)).name)


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the op that assigns the root's values to all global variables of TensorFlow 1.

    Parameters
    ----------
    root_rank : int
        Global rank that provides the values.

    Returns
    -------
    tf.Operation
        Run it in a session after the variables are initialised.

    Raises
    ------
    RuntimeError
        Execution is eager: TensorFlow has no list of global variables then.

    Examples
    --------
    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     weight = tf.compat.v1.get_variable("w", initializer=float(hvd.rank()))
    ...     session.run(tf.compat.v1.global_variables_initializer())
    ...     session.run(hvd.broadcast_global_variables(root_rank=1))
    ...     float(session.run(weight))
    1.0
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution: use hvd.broadcast_variables(variables, "
            "root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """A hook that broadcasts all global variables when a session of TensorFlow 1 begins.

    Parameters
    ----------
    root_rank : int
        Global rank that provides the values.
    device : str
        Accepted because Horovod has it; not used.

    Examples
    --------
    >>> with tf.Graph().as_default():
    ...     weight = tf.compat.v1.get_variable("w", initializer=float(hvd.rank()))
    ...     hooks = [hvd.BroadcastGlobalVariablesHook(root_rank=1)]
    ...     with tf.compat.v1.train.MonitoredSession(hooks=hooks) as session:
    ...         float(session.run(weight))
    1.0
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank, self._broadcast = root_rank, None

    def begin(self) -> None:
        if self._broadcast is None or self._broadcast.graph is not tf.compat.v1.get_default_graph():
            self._broadcast = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._broadcast)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object on every rank.

    Parameters
    ----------
    obj : Any
        On the root, any object that can be pickled (with cloudpickle if it is installed); ignored
        on the other ranks.
    root_rank : int
        Global rank that provides the object.
    session : Any
        Accepted because Horovod has it; not used.
    name : str | None
        Name of the operation; given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    Any
        ``obj`` itself on the root, a copy on the other ranks.

    Examples
    --------
    >>> hvd.broadcast_object({"epoch": 3} if hvd.rank() == 0 else None, root_rank=0)
    {'epoch': 3}
    """
    return objects.broadcast_object(obj, root_rank, name, process_set, "tensorflow")


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Returns a function that calls :func:`broadcast_object` on an object with these arguments.

    Parameters
    ----------
    root_rank, session, name, process_set
        As for :func:`broadcast_object`.

    Returns
    -------
    Callable[[Any], Any]
        A function of the object.

    Examples
    --------
    >>> from_first = hvd.broadcast_object_fn(root_rank=0)
    >>> from_first(["a", hvd.rank()])
    ['a', 0]
    """
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order.

    Parameters
    ----------
    obj : Any
        Any object that can be pickled (with cloudpickle if it is installed).
    session : Any
        Accepted because Horovod has it; not used.
    name : str | None
        Name of the operation; given on all ranks or on none.
    process_set : ProcessSet
        The ranks that take part.

    Returns
    -------
    list[Any]
        One object of each rank.

    Examples
    --------
    >>> hvd.allgather_object({"rank": hvd.rank()})
    [{'rank': 0}, {'rank': 1}]
    """
    return objects.allgather_object(obj, name, process_set, "tensorflow")
