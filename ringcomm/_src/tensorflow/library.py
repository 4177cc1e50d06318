"""The TensorFlow op that runs graph operations; _op_library.c implements it.

If that library cannot be loaded, tf.numpy_function runs the same graph operations through Python.
`operations.py` implements collectives with the op.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ringcomm._src.core import _core
from ringcomm._src.named import graph_ops
from ringcomm._src.named.graph_ops import Description
from ringcomm._src.tensorflow import order

logger = logging.getLogger("ringcomm")
LIBRARY = Path(__file__).with_name("_op_library.so")


@cache
def op() -> Callable[..., Any] | None:
    """Returns TensorFlow's function for the op. If it cannot be loaded, warns and returns None."""
    try:
        module = tf.load_op_library(str(LIBRARY))  # before CDLL: TensorFlow must observe the registration
        library = ctypes.CDLL(str(LIBRARY))
        library.ringcomm_problem.restype = ctypes.c_char_p
        if problem := library.ringcomm_problem().decode():
            raise OSError(problem)
        if not library.ringcomm_connect(ctypes.c_void_p(_core.graph_op_functions())):
            raise OSError(f"{LIBRARY} belongs to another version of ringcomm: reinstall ringcomm")
        return module.ringcomm_run
    except (OSError, tf.errors.OpError) as error:
        logger.warning(
            "the TensorFlow op of ringcomm cannot be loaded, so graphs communicate by the slower tf.numpy_function: %s",
            error,
        )
        return None


@tf.RegisterGradient("RingcommRun")
def _no_gradient(_op: Any, *_gradients: Any) -> Any:
    """Raises NotImplementedError, because a tape's or optimizer's reduction has no gradient.

    These reductions have gradients (gradients.py) only if an outer tape is active while they are
    traced.
    """
    raise NotImplementedError(
        "reduced gradients cannot be differentiated here, because the function that reduces them was traced without "
        "an outer tape: put the outer tf.GradientTape into the same function"
    )


class _Eager:
    """A graph operation with its number as a tensor."""

    def __init__(self, graph_op: _core.GraphOp) -> None:
        self.graph_op = graph_op
        with tf.device("CPU:0"):
            self.graph_op_id = tf.constant(graph_op.id, tf.int64)


_eager = graph_ops.EagerGraphOps(_Eager)


def run(
    description: Description, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType], shapes: Sequence[Any]
) -> list[Any]:
    """Runs a graph operation now, or adds it to the graph that is being built.

    Parameters
    ----------
    dtypes, shapes
        Dtypes and static shapes of the results.
    """
    if tf.executing_eagerly():
        eager = _eager.get(description)
        try:
            return _call(eager.graph_op, eager.graph_op_id, inputs, dtypes)
        except tf.errors.OpError as error:
            try:
                eager.graph_op.raise_failure()
            except Exception as failure:
                raise _as_both_types(failure, error) from None
            raise
    _refuse_xla()
    graph_op = graph_ops.make(description)
    results = order.run_in_order(lambda: _call(graph_op, tf.constant(graph_op.id, tf.int64), inputs, dtypes))
    if not dtypes:
        return []
    for result, shape in zip(results, shapes, strict=True):
        result.set_shape(shape)
    return results


def _as_both_types(failure: Exception, error: tf.errors.OpError) -> Exception:
    """Returns `failure` as an instance of its type and of TensorFlow's, which Horovod raises."""
    kinds = type(failure), type(error)
    if kinds not in _joined_types:
        _joined_types[kinds] = _joined_type(*kinds)
    exception = _joined_types[kinds](*failure.args)
    vars(exception).update(vars(error) | vars(failure))
    return exception.with_traceback(failure.__traceback__)


_joined_types: dict[tuple[type[Exception], ...], type[Exception]] = {}


def _joined_type(ringcomm_type: type[Exception], tensorflow_type: type[Exception]) -> type[Exception]:
    def reduced(error: Exception) -> Any:  # unpickling the error needs no TensorFlow
        return ringcomm_type, error.args

    methods = {"__init__": ringcomm_type.__init__, "__str__": ringcomm_type.__str__, "__reduce__": reduced}
    return type(
        ringcomm_type.__name__,
        (ringcomm_type, tensorflow_type),
        {**methods, "__module__": ringcomm_type.__module__, "__doc__": ringcomm_type.__doc__},
    )


def _refuse_xla() -> None:
    """Raises ValueError if XLA, which has no kernel of the op, will compile the graph.

    XLA itself would raise only at the first run, with a message that does not name ringcomm.
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:  # the graph that calls the function with jit_compile carries the mark
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                raise ValueError(
                    "XLA cannot run collectives in TensorFlow's graphs: pass jit_compile=False to tf.function() or "
                    "model.compile(), or call the collective outside of the compiled function"
                )
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)


def _call(
    graph_op: _core.GraphOp, graph_op_id: tf.Tensor, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]
) -> list[Any]:
    function = op()
    with tf.device("CPU:0"):
        if function is not None:
            return function(graph_op=graph_op_id, x=list(inputs), Tout=list(dtypes))

        def act(*arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
            return graph_ops.run(graph_op, arrays)

        results = tf.numpy_function(act, list(inputs), list(dtypes))
        return list(results) if isinstance(results, list | tuple) else [results]
