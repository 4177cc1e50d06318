"""The TensorFlow op that runs graph operations, from a small library for TensorFlow's C API (_op_library.c).

If the library cannot be loaded, tf.numpy_function runs the same graph operations through Python. `operations.py` makes
collectives of the op.
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
    """Returns TensorFlow's function for the op. If it cannot be loaded, warns once and returns None."""
    try:
        module = tf.load_op_library(str(LIBRARY))  # before CDLL: TensorFlow must observe the registration
        library = ctypes.CDLL(str(LIBRARY))
        library.ringcomm_problem.restype = ctypes.c_char_p
        if problem := library.ringcomm_problem().decode():
            raise OSError(problem)
        if not library.ringcomm_connect(ctypes.c_void_p(_core.graph_op_functions())):
            raise OSError(f"{LIBRARY} is of another version of ringcomm")
        return module.ringcomm_run
    except (OSError, tf.errors.OpError) as error:
        logger.warning("graphs communicate by tf.numpy_function, which is slower: %s", error)
        return None


@tf.RegisterGradient("RingcommRun")
def _no_gradient(_op: Any, *_gradients: Any) -> Any:
    """Raises NotImplementedError: a reduction by a tape or optimizer was traced without an outer tape.

    These reductions have gradients (gradients.py) only if an outer tape is active while they are traced.
    """
    raise NotImplementedError(
        "these gradients were reduced in a function that was traced without an outer tape: put the outer "
        "tf.GradientTape into the same function"
    )


class _Eager:
    """A graph operation with its number as a tensor."""

    def __init__(self, graph_op: _core.GraphOp) -> None:
        self.graph_op = graph_op
        with tf.device("CPU:0"):
            self.number = tf.constant(graph_op.id, tf.int64)


_eager = graph_ops.EagerGraphOps(_Eager)


def run(what: Description, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType], shapes: Sequence[Any]) -> list[Any]:
    """Runs a graph operation now, or adds it to the graph that is being built.

    Args:
        dtypes, shapes: dtypes and static shapes of the results.
    """
    if tf.executing_eagerly():
        eager = _eager.get(what)
        try:
            return _call(eager.graph_op, eager.number, inputs, dtypes)
        except tf.errors.OpError as error:
            try:
                eager.graph_op.raise_failure()
            except Exception as failure:
                raise _of_both_types(failure, error) from None
            raise
    _refuse_xla()
    graph_op = graph_ops.make(what)
    results = order.run_after_the_last(lambda: _call(graph_op, tf.constant(graph_op.id, tf.int64), inputs, dtypes))
    if not dtypes:
        return []
    for result, shape in zip(results, shapes, strict=True):
        result.set_shape(shape)
    return results


def _of_both_types(failure: Exception, error: tf.errors.OpError) -> Exception:
    """Returns `failure` as an instance of its own type and of TensorFlow's, which scripts written for Horovod catch."""
    kinds = type(failure), type(error)
    if kinds not in _joined_types:
        _joined_types[kinds] = _joined_type(*kinds)
    made = _joined_types[kinds](*failure.args)
    vars(made).update(vars(error) | vars(failure))
    return made.with_traceback(failure.__traceback__)


_joined_types: dict[tuple[type[Exception], ...], type[Exception]] = {}


def _joined_type(ours: type[Exception], theirs: type[Exception]) -> type[Exception]:
    def reduced(error: Exception) -> Any:  # unpickling the error needs no TensorFlow
        return ours, error.args

    methods = {"__init__": ours.__init__, "__str__": ours.__str__, "__reduce__": reduced}
    return type(ours.__name__, (ours, theirs), {**methods, "__module__": ours.__module__, "__doc__": ours.__doc__})


def _refuse_xla() -> None:
    """Raises ValueError if XLA will compile the current graph: it has no kernel of the op.

    XLA itself would raise only at the first run, with a message that does not name ringcomm.
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:  # the graph that calls the function with jit_compile carries the mark
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                raise ValueError(
                    "XLA cannot run collectives in TensorFlow's graphs: give jit_compile=False to tf.function() or "
                    "model.compile(), or call the collective outside of the function that is compiled"
                )
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)


def _call(
    graph_op: _core.GraphOp, number: tf.Tensor, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]
) -> list[Any]:
    function = op()
    with tf.device("CPU:0"):
        if function is not None:
            return function(graph_op=number, x=list(inputs), Tout=list(dtypes))

        def act(*arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
            return graph_ops.run(graph_op, arrays)

        results = tf.numpy_function(act, list(inputs), list(dtypes))
        return list(results) if isinstance(results, list | tuple) else [results]
