"""Broadcasts of variables and Python objects, allgather of objects, and the replica check for TensorFlow.

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
from ringcomm._src.training.gradient_lists import named_as, names_of
from ringcomm._src.training.replicas import compare_now


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Assigns the root's values to the variables, all in one operation.

    Args:
        variables: TensorFlow's or Keras' variables, with the same shapes, dtypes and order on all ranks.
        root_rank: global rank that provides the values.
        process_set: the ranks that take part.
        inplace: accepted because Horovod has it.

    Returns:
        None in eager mode and in functions; in a graph of TensorFlow 1, the op that assigns.
    """
    given = [one for one in variables if tf.as_dtype(_dtype(one)) != tf.string]
    values = [tf.convert_to_tensor(one) for one in given]
    names = [f"variables.{named_as(i, one)}" for i, one in enumerate(given)]
    received = operations.broadcast(values, root_rank, names, True, process_set)
    assigned = [one.assign(value) for one, value in zip(given, received, strict=True)]
    in_old_graph = not tf.executing_eagerly() and not tf.inside_function()
    return tf.group(*assigned) if in_old_graph else None


def _dtype(variable: Any) -> Any:
    dtype = variable.dtype
    return dtype.base_dtype if hasattr(dtype, "base_dtype") else dtype


def check_replicas(
    variables: Sequence[Any], name: str = "variables", process_set: ProcessSet = global_process_set
) -> None:
    """Compares variables between the ranks, for example before rank 0 saves a checkpoint. Collective.

    Distributed optimizers and tapes compare their variables after the first step and every 1,000 steps. A difference
    is a warning on rank 0, or, if ``RINGCOMM_REPLICA_CHECK`` is ``error``, a MismatchError on every rank. The message
    names the variables, the ranks and the largest difference, and counts the calls of this name as steps.

    Args:
        variables: TensorFlow's or Keras' variables, with the same shapes on all ranks.
        name: name of the comparison in messages.
        process_set: the ranks that compare.

    Raises:
        MismatchError: on every rank, if variables differ and the option is ``error``.
        ValueError: in a graph or a ``tf.function``, which has no values.
    """
    if not tf.executing_eagerly():
        raise ValueError("check_replicas compares values, which a graph has not: call it outside of tf.function")
    given = [one for one in variables if _dtype_name(one) in _core.DTYPES]
    compare_now(process_set, name, names_of(given), [tf.convert_to_tensor(one).numpy() for one in given])


def _dtype_name(variable: Any) -> str:
    return str(tf.as_dtype(_dtype(variable)).name)


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the op that assigns the root's values to all global variables, in a graph of TensorFlow 1."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution: use hvd.broadcast_variables(variables, "
            "root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """A hook that assigns the root's values to all global variables when a session of TensorFlow 1 begins."""

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
    """Returns the root's object on every rank: ``obj`` itself on the root, a copy on the other ranks.

    Args:
        obj: on the root, any object that pickles (with cloudpickle if it is installed); ignored on the other ranks.
        root_rank: global rank that provides the object.
        session: accepted because Horovod has it; not used.
        name: name of the operation; given on all ranks or on none.
        process_set: the ranks that take part.
    """
    return objects.broadcast_object(obj, root_rank, name, process_set, "tensorflow")


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Returns a function that calls :func:`broadcast_object` on an object with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order. ``session`` is accepted because Horovod has it; it is not used."""
    return objects.allgather_object(obj, name, process_set, "tensorflow")
